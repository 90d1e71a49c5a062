"""What this machine is, and what can run on it."""
