"""Backup, restore, and copies between stores."""
