"""Storage: the only floor that speaks SQL."""
