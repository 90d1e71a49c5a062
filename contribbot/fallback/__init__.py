"""What a program lets the CPU do, and copies, although its data is on a GPU (docs/fallback.md)."""
