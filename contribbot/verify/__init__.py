"""Verification: a pipeline over a registry of stages, and the evidence of what it saw."""
