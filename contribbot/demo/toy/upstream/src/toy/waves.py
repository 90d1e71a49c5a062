"""Wavefronts."""


def waves(threads: int, width: int = 64) -> int:
    """Return how many wavefronts a block of threads takes."""
    return threads // width
