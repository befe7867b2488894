"""Where every command begins: settings read, logs set up, the store open, queues found by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kesin.cli import bridge
from kesin.cli.failures import Failure, Usage, did_you_mean
from kesin.cli.names import find_lifecycle, registry
from kesin.engine.accounts import Accounts
from kesin.engine.command import Commands
from kesin.engine.queue import Queue
from kesin.foundation.access import Actor, system
from kesin.foundation.logs import Level, set_up_logs
from kesin.foundation.settings import Settings, load_settings
from kesin.foundation.terminal import typist
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.errors import StoreUnreachable
from kesin.store.open import open_stores
from kesin.workloads import House, Workload, workloads


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with."""

    settings: Settings
    store: Store

    @property
    def accounts(self) -> Accounts:
        """People, keys and sites of the store."""
        return Accounts(Directory(self.store))

    def readable(self, name: str) -> str:
        """The name, once it is sure that this queue exists and can be read."""
        if name not in self.store.queues() and name not in registry():
            raise self._unknown(name)
        bridge.look(self.store, name)
        return name

    def all_or(self, names: Sequence[str] | None) -> list[str]:
        """These queues, or all of the store, ready to be read."""
        return [self.readable(name) for name in names or self.store.queues()]

    def queue(self, name: str, lifecycle: str | None = None) -> Queue:
        """The queue, open for moves."""
        rules = self.rules(name, lifecycle)
        return Queue(name, rules, self.store)

    def house(self, workload: Workload) -> House:
        """What the service would give a workload; the queues of all are open."""
        known = workloads()
        unsited = frozenset(one.name for one in known.values() if not one.sited)
        queues = {name: self.queue(name) for name in known}
        own = {one.name: one.own_calls for one in known.values()}
        commands = Commands(queues, self.accounts, unsited, own)
        return House(self.settings, commands, queues[workload.name])

    def rules(self, name: str, lifecycle: str | None = None) -> Lifecycle:
        """The lifecycle that a queue runs under, or the one that is named."""
        if lifecycle is not None:
            return find_lifecycle(lifecycle)
        known = registry()
        try:
            stored = self.store.definition(name)
        except StoreUnreachable:
            if name not in known or self.store.home(name) is self.store.home(""):
                raise
            return known[name]()  # it is declared there as soon as that can be reached
        if stored is None:
            if name in known:
                return known[name]()
            raise self._unknown(name)
        if stored.lifecycle in known:
            rules = known[stored.lifecycle]()
            if [state.name for state in rules.states] == list(stored.states):
                return rules
        raise Usage(
            f"the queue {name!r} runs under a lifecycle of your own, {stored.lifecycle!r}: "
            "say where it is declared with --lifecycle module:attribute"
        )

    def _unknown(self, name: str) -> Usage:
        known = sorted({*self.store.queues(), *registry()})
        meant = did_you_mean(name, known) or f": there are {', '.join(known)}"
        return Usage(
            f"there is no queue {name!r}{meant} "
            "(a new queue is made by `kesin enqueue` or `kesin worker` with --lifecycle)"
        )


@contextmanager
def open_desk(*, make: bool = False, level: Level = "warning") -> Iterator[Desk]:
    """Open the store of the settings; a file that is not there is made only with ``make``."""
    settings = load_settings()
    set_up_logs(settings.log, level)
    file = settings.database_file
    if file is not None and not make and not file.exists():
        raise Failure(
            f"there is no database at {file}: enqueue a job or run `kesin migrate` to make it, "
            "or say with KESIN_DATA_DIR or KESIN_DATABASE_URL where it is"
        )
    bridge.check_reachable(settings)
    store = open_stores(settings)
    try:
        yield Desk(settings, store)
    finally:
        store.close()


def operator() -> Actor:
    """Whoever types: at the machine itself everything is allowed, and all of it is noted."""
    return system(typist())
