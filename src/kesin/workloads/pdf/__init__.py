"""HTML templates to PDF, away from the request path."""
