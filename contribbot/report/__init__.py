"""The queue as static pages: what each patch is for, what ran, and what did not."""
