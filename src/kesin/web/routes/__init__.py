"""The JSON routes that belong to no workload."""
