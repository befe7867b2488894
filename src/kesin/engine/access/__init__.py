"""Access control: commands, accounts, sites, sealed secrets and the audit log."""
