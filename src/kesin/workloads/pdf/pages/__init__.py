"""The dashboard pages for PDFs."""
