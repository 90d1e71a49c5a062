"""A queue of patches against upstream projects, each with proof."""

__version__ = "0.2.0"
