"""Compilers for AMD targets, what their code holds, and builds of extensions and trees."""
