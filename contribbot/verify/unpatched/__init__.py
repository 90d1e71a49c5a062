"""Asking the fail-to-pass entries of a patch on a tree without it."""
