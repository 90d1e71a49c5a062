"""Verification: a pipeline over a registry of stages, and the records of their outcomes."""
