"""Motion: a lifecycle and a store make a queue that runs."""
