"""The dashboard pages of a site: OCI Control and its settings."""
