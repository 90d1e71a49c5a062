"""Find this machine's hardware and software, and what it lacks for a queue's patches."""
