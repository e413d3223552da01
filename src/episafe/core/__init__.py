"""The types that every package shares."""
