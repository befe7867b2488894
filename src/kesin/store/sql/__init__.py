"""What the SQLite and PostgreSQL stores share: statements, queries and migrations."""
