"""The commands `status`, `rebase` and `bisect`, for new releases of a queue's upstreams."""
