"""contribbot: a patch queue with proof."""

__version__ = "0.1.0"
