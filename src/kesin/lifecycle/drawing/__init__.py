"""Drawings of a lifecycle: a table, a Mermaid diagram and an SVG."""
