"""Bring the trees of pins from package indexes, archives, git remotes and installed packages."""
