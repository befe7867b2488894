"""Who may do what: commands, accounts, sites, sealed secrets and the audit log."""
