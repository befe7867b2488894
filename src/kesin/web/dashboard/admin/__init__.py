"""Pages for administrators: users, API keys, sites, the audit log, workers."""
