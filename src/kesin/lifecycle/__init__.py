"""Lifecycles as data, and the proof that every job ends. No clock, no I/O."""
