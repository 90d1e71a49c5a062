"""contribbot: a patch queue with proof."""

__version__ = "0.2.0"
