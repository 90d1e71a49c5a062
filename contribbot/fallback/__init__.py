"""Find a program's work and copies on the CPU although the data is on a GPU (docs/fallback.md)."""
