"""Plans as files for machines: what an independent reader finds in them."""
