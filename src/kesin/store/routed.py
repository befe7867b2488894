"""Several stores as one: each queue names its home, and everything else lives in the main one.

People, keys, sites and the audit log are in the main store, which is SQL. A queue whose home is
elsewhere is opened, moved and read there; a transaction is always of one store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import Role
from kesin.store.contract import Store
from kesin.store.errors import StoreUnreachable
from kesin.store.records import (
    Definition,
    Event,
    Filter,
    Flow,
    NewJob,
    Note,
    Outcome,
    Page,
    Pause,
    QueueStats,
    Waiting,
)


class Stores(Store):
    """A main store, and others that are the home of some queues."""

    def __init__(self, main: Store, homes: Mapping[str, Store]) -> None:
        self.main = main
        self.homes = dict(homes)

    def home(self, queue: str) -> Store:
        return self.homes.get(queue, self.main)

    @property
    def others(self) -> list[Store]:
        """The stores beside the main one, each once."""
        return list({id(store): store for store in self.homes.values()}.values())

    def migrate(self) -> list[str]:
        return [name for store in (self.main, *self.others) for name in store.migrate()]

    def open(self, queue: str, lifecycle: Lifecycle) -> None:
        self.home(queue).open(queue, lifecycle)

    def transaction(self) -> AbstractContextManager[Any]:
        return self.main.transaction()

    def enqueue(
        self, queue: str, jobs: Sequence[NewJob], *, actor: str, now: int | None = None
    ) -> list[Outcome]:
        return self.home(queue).enqueue(queue, jobs, actor=actor, now=now)

    def claim(self, queue: str, **how: Any) -> list[Job]:
        return self.home(queue).claim(queue, **how)

    def peek(self, queue: str, **how: Any) -> list[Job]:
        return self.home(queue).peek(queue, **how)

    def renew(self, queue: str, claims: Sequence[tuple[str, int]], **how: Any) -> set[str]:
        return self.home(queue).renew(queue, claims, **how)

    def apply(self, queue: str, call: str, changes: Sequence[Change], **how: Any) -> list[Outcome]:
        return self.home(queue).apply(queue, call, changes, **how)

    def foresee(
        self, queue: str, call: str, where: Filter, *, role: Role, **how: Any
    ) -> dict[tuple[str, str], int]:
        return self.home(queue).foresee(queue, call, where, role=role, **how)

    def sweep(self, queue: str, move: Move, **how: Any) -> int:
        return self.home(queue).sweep(queue, move, **how)

    def job(self, job_id: str) -> Job | None:
        found = self._found(job_id)
        return found and found[1]

    def _found(self, job_id: str) -> tuple[Store, Job] | None:
        """A job where its queue lives now: what it left behind in another store is not it."""
        for store in (self.main, *self.others):
            job = store.job(job_id)
            if job is not None and self.home(job.queue) is store:
                return store, job
        return None

    def find(self, queue: str, ids: Sequence[str]) -> dict[str, Job]:
        return self.home(queue).find(queue, ids)

    def states(self, queue: str, ids: Sequence[str]) -> dict[str, str]:
        return self.home(queue).states(queue, ids)

    def holders(self, queue: str, tenant: str, keys: Sequence[str]) -> dict[str, str]:
        return self.home(queue).holders(queue, tenant, keys)

    def jobs(
        self, queue: str, where: Filter, *, limit: int = 100, cursor: str | None = None
    ) -> Page:
        return self.home(queue).jobs(queue, where, limit=limit, cursor=cursor)

    def events(self, job_id: str) -> list[Event]:
        found = self._found(job_id)
        return [] if found is None else found[0].events(job_id)

    def notes(self, job_id: str) -> list[Note]:
        found = self._found(job_id)
        return [] if found is None else found[0].notes(job_id)

    def add_note(self, queue: str, **details: Any) -> None:
        self.home(queue).add_note(queue, **details)

    def stats(self, queue: str, *, now: int | None = None) -> QueueStats:
        return self.home(queue).stats(queue, now=now)

    def waiting(self, queue: str, tenant: str, **how: Any) -> Waiting:
        return self.home(queue).waiting(queue, tenant, **how)

    def ahead(self, queue: str, job_id: str, *, most: int) -> int | None:
        return self.home(queue).ahead(queue, job_id, most=most)

    def flows(self, queue: str) -> list[Flow]:
        return self.home(queue).flows(queue)

    def compact(self, queue: str) -> int:
        return self.home(queue).compact(queue)

    def pause(self, queue: str, **how: Any) -> None:
        self.home(queue).pause(queue, **how)

    def resume(self, queue: str, *, tenant: str = "") -> bool:
        return self.home(queue).resume(queue, tenant=tenant)

    def paused(self, queue: str) -> list[Pause]:
        return self.home(queue).paused(queue)

    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        return self.home(queue).scan(queue)

    def ping(self) -> None:
        self.main.ping()

    def ping_others(self) -> None:
        """Whether the others answer: nothing but their own queues depends on it."""
        for store in self.others:
            store.ping()

    def definition(self, queue: str) -> Definition | None:
        return self.home(queue).definition(queue)

    def queues(self) -> list[str]:
        """Those of the main store, and those elsewhere that can be asked for at the moment."""
        names = set(self.main.queues())
        for store in self.others:
            mine = {queue for queue, home in self.homes.items() if home is store}
            try:
                names = (names - mine) | (mine & set(store.queues()))
            except StoreUnreachable:
                names |= mine
        return sorted(names)

    def health(self) -> dict[str, str | int]:
        report = self.main.health()
        for store in self.others:
            try:
                told = store.health()
            except StoreUnreachable:
                continue  # whoever asks for health pings it as well
            kind = str(told.pop("store"))
            report |= {f"{kind}_{name}": value for name, value in told.items()}
        return report

    def pulse(self, queue: str) -> int:
        return self.home(queue).pulse(queue)

    def wait(self, queue: str, since: int, timeout_s: float) -> None:
        self.home(queue).wait(queue, since, timeout_s)

    def wake(self, queue: str) -> None:
        self.home(queue).wake(queue)

    def close(self) -> None:
        for store in (self.main, *self.others):
            store.close()
