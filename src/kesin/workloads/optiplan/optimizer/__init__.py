"""The built-in optimiser: plans how parts are cut from boards and verifies every plan.

It replaces OptiPlanning, so it is a program of its own (``python -m
kesin.workloads.optiplan.optimizer``) and imports nothing of jobs, queues or the web.
"""
