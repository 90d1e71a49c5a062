"""Compilers for AMD targets, listings of their code, and builds of extensions and trees."""
