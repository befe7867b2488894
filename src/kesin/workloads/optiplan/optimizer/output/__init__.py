"""Plans as files and papers."""
