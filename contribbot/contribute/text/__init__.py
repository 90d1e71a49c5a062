"""The text of a pull request and of an issue, from prose and evidence."""
