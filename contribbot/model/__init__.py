"""The types that the rooms hand to each other."""
