"""The channels to Google: clients, credentials, error classification and the breaker."""
