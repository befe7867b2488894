"""The HTTP routes of the workshop."""
