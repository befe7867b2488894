"""Plans as files: XML, SVG, PDF and cut lists."""
