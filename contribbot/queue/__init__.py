"""The queue: loading it, checking it, ordering it."""
