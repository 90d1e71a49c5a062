"""Sweeps over an upstream's test files on emulated GPUs: what happened, and patches of it."""
