"""The adversary: queues under a virtual clock, injected faults, and the checks after every step."""
