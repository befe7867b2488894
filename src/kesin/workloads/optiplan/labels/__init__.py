"""Labels of parts and offcuts."""
