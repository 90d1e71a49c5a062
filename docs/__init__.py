"""The pages, and what writes parts of them."""
