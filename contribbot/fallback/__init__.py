"""Work and copies of a program on the CPU although its data is on a GPU (docs/fallback.md)."""
