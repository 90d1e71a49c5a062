"""The queue of patches: loaded, checked, ordered and changed."""
