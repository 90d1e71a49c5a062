"""Bare git stores of upstream trees: fetch trees, and apply patches to trees."""
