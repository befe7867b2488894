"""The HTTP routes for conversions."""
