"""Templates, their variables and their filters."""
