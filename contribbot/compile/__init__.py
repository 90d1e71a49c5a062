"""Compile code for AMD targets, read its listings, and build extensions and whole trees."""
