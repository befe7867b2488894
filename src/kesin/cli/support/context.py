"""The context of a command: settings, logs and the store; queues and lifecycles found by name."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kesin.cli.support.errors import CommandError, UsageError, did_you_mean
from kesin.cli.support.inspection import open_for_reading
from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.results import require_plain_function
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.logs import Level
from kesin.foundation.settings import Settings
from kesin.lifecycle.codec import lifecycle_from_json
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.errors import StoreUnreachable
from kesin.workloads import lifecycles, workloads
from kesin.workloads.common.cli import local_operator, open_stores

__all__ = ["local_operator"]  # which workloads have too

_OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What a command works with."""

    settings: Settings
    store: Store

    @property
    def accounts(self) -> Accounts:
        return Accounts(Directory(self.store))

    def readable_queue(self, name: str) -> str:
        """The name of a queue that exists, open for reading."""
        if name not in self.store.queues() and name not in lifecycles():
            raise self._unknown_queue(name)
        open_for_reading(self.store, name)
        return name

    def readable_queues(self, names: Sequence[str] | None) -> list[str]:
        """These queues, or all of the store, open for reading."""
        return [self.readable_queue(name) for name in names or self.store.queues()]

    def open_queue(self, name: str, lifecycle: str | None = None) -> Queue:
        return Queue(name, self.lifecycle_of(name, lifecycle), self.store)

    def workload_context(self, workload: Workload) -> WorkloadContext:
        """What the service would give a workload; the queues of all workloads are open."""
        queues = {name: self.open_queue(name) for name in workloads()}
        commands = Commands(queues, self.accounts, workloads())
        return WorkloadContext(self.settings, commands, queues[workload.name])

    def lifecycle_of(self, name: str, lifecycle: str | None = None) -> Lifecycle:
        if lifecycle is not None:
            return find_lifecycle(lifecycle)
        known = lifecycles()
        try:
            stored = self.store.definition(name)
        except StoreUnreachable:
            if name not in known or self.store.store_for(name) is self.store.store_for(""):
                raise
            return known[name]()  # declared there as soon as that store can be reached
        if stored is None:
            if name in known:
                return known[name]()
            raise self._unknown_queue(name)
        if stored.lifecycle in known:
            registered = known[stored.lifecycle]()
            if [state.name for state in registered.states] == list(stored.states):
                return registered
        raise UsageError(
            f"the queue {name!r} uses your own lifecycle {stored.lifecycle!r}: "
            "name the object that declares it with --lifecycle module:attribute"
        )

    def _unknown_queue(self, name: str) -> UsageError:
        known = sorted({*self.store.queues(), *lifecycles()})
        meant = did_you_mean(name, known) or f": the queues are {', '.join(known)}"
        return UsageError(
            f"there is no queue {name!r}{meant} "
            "(a new queue is created by `kesin enqueue` or `kesin worker` with --lifecycle)"
        )


@contextmanager
def open_context(*, create: bool = False, level: Level = "warning", wait_s: float = 0) -> Iterator[CommandContext]:
    """Open the store; ``create`` a missing file, wait ``wait_s`` while the server may restart."""
    made_by = None if create else "enqueue a job or run `kesin migrate` to create it"
    served = workloads().values()
    with open_stores(served, made_by=made_by, level=level, wait_s=wait_s) as (settings, store):
        yield CommandContext(settings, store)


def load_object(name: str) -> Any:
    """Load what ``module:attribute`` names; the current folder is searched first."""
    if not _OBJECT.fullmatch(name):
        raise UsageError(f"{name!r} is not of the form module:attribute, like mails.tasks:send")
    module_name, _, path = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        loaded: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        if problem.name and (module_name + ".").startswith(problem.name + "."):
            raise UsageError(
                f"there is no module {problem.name!r} in {folder} or among the installed packages"
            ) from None
        raise CommandError(f"importing {module_name} failed: {problem}") from problem
    except (Exception, SystemExit) as problem:
        why = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise CommandError(f"importing {module_name} failed: {why}") from problem
    for part in path.split("."):
        if not hasattr(loaded, part):
            where = getattr(loaded, "__name__", module_name)
            public = [name for name in dir(loaded) if not name.startswith("_")]
            raise UsageError(f"{where} has no {part!r}{did_you_mean(part, public)}")
        loaded = getattr(loaded, part)
    return loaded


def stored_lifecycle(store: Store, queue: str) -> Lifecycle | None:
    """The newest rules that a queue was opened with; None where a store has only their names."""
    versions = store.store_for(queue).rules(queue)
    if not versions or not versions[-1].version:
        return None
    try:
        return lifecycle_from_json(versions[-1].definition)
    except (TypeError, ValueError, KeyError):  # written by a newer version
        return None


def load_handler(name: str, *, batch: bool) -> Callable[..., Any]:
    loaded = load_object(name)
    if not callable(loaded):
        raise UsageError(f"{name} is not a function but a {type(loaded).__name__}")
    handler: Callable[..., Any] = loaded
    try:
        require_plain_function(handler, batch=batch)
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    return handler


def find_lifecycle(name: str) -> Lifecycle:
    """The registered lifecycle of that name, or the one ``module:attribute`` is or returns."""
    known = lifecycles()
    if name in known:
        return known[name]()
    if ":" not in name:
        raise UsageError(
            f"there is no lifecycle {name!r}{did_you_mean(name, known) or ':'} "
            f"the choices are {', '.join(known)}, or your own as module:attribute"
        )
    loaded = load_object(name)
    if callable(loaded) and not isinstance(loaded, Lifecycle):
        _require_no_arguments(name, loaded)
        loaded = loaded()
    if not isinstance(loaded, Lifecycle):
        raise UsageError(f"{name} must be or return a lifecycle, not a {type(loaded).__name__}")
    return loaded


def _require_no_arguments(name: str, function: Callable[..., Any]) -> None:
    """Checked before the call: a TypeError from inside the function is an error of its own."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # as it is called
    except (TypeError, ValueError):  # its parameters are unknown
        return
    try:
        signature.bind()
    except TypeError as problem:
        raise UsageError(f"{name} cannot be called without arguments: {problem}") from problem
