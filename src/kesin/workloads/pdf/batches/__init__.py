"""Batches: many rows of one template."""
