"""An order as data, and order lists from spreadsheets."""
