"""Branch and pull request: made, brought up to date, handed off."""
