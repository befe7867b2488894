"""Simulation of queues with a virtual clock, injected faults, and checks after every call."""
