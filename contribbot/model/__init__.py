"""The types that the packages share."""
