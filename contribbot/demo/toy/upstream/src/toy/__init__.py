"""A toy."""
