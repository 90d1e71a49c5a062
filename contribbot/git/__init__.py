"""Upstream trees in bare git stores: trees are fetched, and patches applied to trees."""
