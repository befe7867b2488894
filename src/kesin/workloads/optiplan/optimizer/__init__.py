"""The built-in optimiser, a program of its own: it imports nothing of jobs, queues or the web."""
