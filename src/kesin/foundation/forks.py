"""Forks: a child has one thread, and inherits held locks, sockets and random state."""

import ctypes
import os
from functools import partial
from weakref import WeakSet


class ForkAware:
    """An object with callbacks for forks, which begin with ``watch_forks``."""

    def watch_forks(self) -> None:
        _watching.add(self)

    def ignore_forks(self) -> None:
        """Remove the callbacks, once there is nothing left to replace."""
        _watching.discard(self)

    def before_fork(self) -> None:
        """Called in the process that is about to fork."""

    def after_fork_in_parent(self) -> None:
        """Called in that process afterwards."""

    def after_fork_in_child(self) -> None:
        """Called in the new process, which has this one thread."""


def keep_for_ever(thing: object) -> None:
    """Never finalise an object that belongs to the parent, not even when this process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


_watching: WeakSet[ForkAware] = WeakSet()


def _call_all(callback: str) -> None:
    for watching in list(_watching):
        getattr(watching, callback)()


os.register_at_fork(
    before=partial(_call_all, "before_fork"),
    after_in_parent=partial(_call_all, "after_fork_in_parent"),
    after_in_child=partial(_call_all, "after_fork_in_child"),
)
