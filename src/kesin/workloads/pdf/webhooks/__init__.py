"""Webhooks: signed, delivered, retried."""
