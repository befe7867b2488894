"""E-invoices: XML that is given, or Factur-X made from the variables of an invoice."""
