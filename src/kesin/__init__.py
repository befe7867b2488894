"""Kesin: durable work queues whose every job is proved to end.

Names are imported when they are first used: `kesin --help` needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kesin.engine.answers import Done, Failed, Make, Wait
    from kesin.engine.queue import BadInput, New, Queue, StaleClaim
    from kesin.engine.run import Run
    from kesin.engine.sweeper import Sweeper
    from kesin.engine.worker import Worker
    from kesin.lifecycle.declare import Lifecycle, Move, State
    from kesin.lifecycle.model import Job
    from kesin.lifecycle.prove import Unproved, prove
    from kesin.lifecycle.task import task_lifecycle
    from kesin.store.open import open_store

_HOMES = {
    "kesin.engine.answers": ("Done", "Failed", "Make", "Wait"),
    "kesin.engine.queue": ("BadInput", "New", "Queue", "StaleClaim"),
    "kesin.engine.run": ("Run",),
    "kesin.engine.sweeper": ("Sweeper",),
    "kesin.engine.worker": ("Worker",),
    "kesin.lifecycle.declare": ("Lifecycle", "Move", "State"),
    "kesin.lifecycle.model": ("Job",),
    "kesin.lifecycle.prove": ("Unproved", "prove"),
    "kesin.lifecycle.task": ("task_lifecycle",),
    "kesin.store.open": ("open_store",),
}
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


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(home), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
