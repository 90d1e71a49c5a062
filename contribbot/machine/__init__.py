"""This machine: its hardware and software, and its lacks for the patches of a queue."""
