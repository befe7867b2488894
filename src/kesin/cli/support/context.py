"""The context of a command: settings read, logs set up, the store open, queues found by name."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kesin.cli.support.errors import UsageError, did_you_mean
from kesin.cli.support.inspection import open_for_reading
from kesin.cli.support.lifecycles import find_lifecycle
from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.logs import Level
from kesin.foundation.settings import Settings
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.errors import StoreUnreachable
from kesin.workloads import lifecycles, workloads
from kesin.workloads.common.cli import local_operator, open_stores

__all__ = ["CommandContext", "local_operator", "open_context"]


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
        """The queue, open for moves."""
        return Queue(name, self.lifecycle_of(name, lifecycle), self.store)

    def workload_context(self, workload: Workload) -> WorkloadContext:
        """What the service would give a workload; the queues of all workloads are open."""
        queues = {name: self.open_queue(name) for name in workloads()}
        commands = Commands(queues, self.accounts, workloads())
        return WorkloadContext(self.settings, commands, queues[workload.name])

    def lifecycle_of(self, name: str, lifecycle: str | None = None) -> Lifecycle:
        """The lifecycle of a queue, or the one that is named."""
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
            f"the queue {name!r} runs under a lifecycle of your own, {stored.lifecycle!r}: "
            "say where it is declared with --lifecycle module:attribute"
        )

    def _unknown_queue(self, name: str) -> UsageError:
        known = sorted({*self.store.queues(), *lifecycles()})
        meant = did_you_mean(name, known) or f": there are {', '.join(known)}"
        return UsageError(
            f"there is no queue {name!r}{meant} "
            "(a new queue is created by `kesin enqueue` or `kesin worker` with --lifecycle)"
        )


@contextmanager
def open_context(
    *, create: bool = False, level: Level = "warning", wait_s: float = 0
) -> Iterator[CommandContext]:
    """Open the store; ``create`` a missing file, wait ``wait_s`` while the server may restart."""
    made_by = None if create else "enqueue a job or run `kesin migrate` to create it"
    served = workloads().values()
    with open_stores(served, made_by=made_by, level=level, wait_s=wait_s) as (settings, store):
        yield CommandContext(settings, store)
