"""The Redis store: one Lua script and what calls it."""
