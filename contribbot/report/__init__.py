"""The report of a queue as static pages: each patch's purpose, what ran, and what did not run."""
