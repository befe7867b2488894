"""Code shared by the SQLite and PostgreSQL stores: statements, queries and migrations."""
