"""The page of one job: its timeline, its outlook and the panel of its workload."""
