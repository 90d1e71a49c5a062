"""Sweeps: an upstream's tests on emulated GPUs, the findings, and patches begun from findings."""
