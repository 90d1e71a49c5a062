"""`contribbot demo`: the way of a patch on a toy upstream, on this machine alone."""
