"""Kesin: durable work queues whose every job is proved to end."""

from kesin.engine.answers import Done, Failed, Make, Wait
from kesin.engine.queue import BadInput, New, Queue, StaleClaim
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Run, Worker
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.model import Job
from kesin.lifecycle.prove import Unproved, prove
from kesin.lifecycle.task import task_lifecycle
from kesin.store.open import open_store

__all__ = [
    "BadInput",
    "Done",
    "Failed",
    "Job",
    "Lifecycle",
    "Make",
    "Move",
    "New",
    "Queue",
    "Run",
    "StaleClaim",
    "State",
    "Sweeper",
    "Unproved",
    "Wait",
    "Worker",
    "open_store",
    "prove",
    "task_lifecycle",
]
__version__ = "0.1.0"
