"""What the workloads share."""
