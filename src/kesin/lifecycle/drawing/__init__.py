"""A lifecycle as a table, as Mermaid and as SVG."""
