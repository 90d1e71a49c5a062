"""The command line: it translates, and holds no logic. One file per command."""
