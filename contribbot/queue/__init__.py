"""Load, check, order and change a queue of patches."""
