"""Forms built from a JSON schema, and uploads."""
