"""The dashboard pages of the workshop."""
