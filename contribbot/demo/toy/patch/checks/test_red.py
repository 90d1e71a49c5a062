"""A block that is no multiple of the width takes one more wavefront."""

from toy.waves import waves


def test_the_last_wavefront_counts() -> None:
    assert waves(65) == 2
