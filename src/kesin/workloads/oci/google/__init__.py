"""Everything that talks to Google."""
