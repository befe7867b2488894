"""The proof that every job of a lifecycle ends."""
