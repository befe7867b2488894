"""A conversion: parsed, validated, ingested and corrected."""
