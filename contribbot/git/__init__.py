"""Upstream trees in bare git stores: where they come from, and patches on them."""
