"""Ways to lay parts out on boards."""
