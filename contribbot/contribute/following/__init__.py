"""What becomes of a pull request, what is said there, and the answer."""
