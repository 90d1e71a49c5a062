"""Compiling what checks load: single kernels as an extension, or an upstream as a whole."""
