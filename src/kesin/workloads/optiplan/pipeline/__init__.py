"""An order's way from NEW to DONE."""
