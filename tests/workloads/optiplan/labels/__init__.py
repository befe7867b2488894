"""Labels: what is on them, and what a scanner reads."""
