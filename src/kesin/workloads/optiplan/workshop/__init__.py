"""The workshop's settings: rules.json and paths.json."""
