"""What every layer but the lifecycles may import: settings, clock, ids, logs, permissions."""
