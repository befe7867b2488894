"""The Redis store: one Lua script and the code that runs it."""
