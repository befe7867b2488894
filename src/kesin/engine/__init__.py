"""The engine: queues, workers and the sweeper, which run a lifecycle on a store."""
