"""Adjustments of conversions: retracted sales, and sales whose value changed."""
