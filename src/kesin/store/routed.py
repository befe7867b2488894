"""Several stores behind one interface: some queues are routed, all else is in the main store.

Users, keys, sites and the audit log are in the main store, which is SQL. A routed queue is opened,
moved and read in its own store; a transaction never spans two stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import Role
from kesin.store.contract import Store
from kesin.store.declarations import DeclaredMoves
from kesin.store.errors import StoreUnreachable
from kesin.store.records import (
    Backlog,
    Definition,
    Event,
    Filter,
    MoveCount,
    NewJobRow,
    Note,
    Outcome,
    Page,
    Pause,
    QueueStats,
    RulesVersion,
)


class RoutedStore(Store):
    """A main store, and secondary stores that hold some queues."""

    def __init__(self, main: Store, homes: Mapping[str, Store]) -> None:
        self.main = main
        self.stores_by_queue = dict(homes)

    def store_for(self, queue: str) -> Store:
        return self.stores_by_queue.get(queue, self.main)

    @property
    def secondary_stores(self) -> list[Store]:
        """The stores besides the main one, without repeats."""
        return list({id(store): store for store in self.stores_by_queue.values()}.values())

    def migrate(self) -> list[str]:
        return [name for store in (self.main, *self.secondary_stores) for name in store.migrate()]

    def open(self, queue: str, lifecycle: Lifecycle, *, virtual_time: bool = False) -> None:
        self.store_for(queue).open(queue, lifecycle, virtual_time=virtual_time)

    def declared(self, queue: str) -> DeclaredMoves:
        return self.store_for(queue).declared(queue)

    def rules(self, queue: str) -> list[RulesVersion]:
        return self.store_for(queue).rules(queue)

    def retired_states(self, queue: str) -> frozenset[str]:
        return self.store_for(queue).retired_states(queue)

    def retire(self, queue: str, state: str, *, now: int | None = None) -> None:
        self.store_for(queue).retire(queue, state, now=now)

    def transaction(self) -> AbstractContextManager[Any]:
        return self.main.transaction()

    def enqueue(
        self, queue: str, jobs: Sequence[NewJobRow], *, actor: str, now: int | None = None
    ) -> list[Outcome]:
        return self.store_for(queue).enqueue(queue, jobs, actor=actor, now=now)

    def claim(self, queue: str, **options: Any) -> list[Job]:
        return self.store_for(queue).claim(queue, **options)

    def peek(self, queue: str, **options: Any) -> list[Job]:
        return self.store_for(queue).peek(queue, **options)

    def ready_tenants(self, queue: str, limit: int) -> list[str]:
        return self.store_for(queue).ready_tenants(queue, limit)

    def renew(self, queue: str, claims: Sequence[tuple[str, int]], **options: Any) -> set[str]:
        return self.store_for(queue).renew(queue, claims, **options)

    def apply(
        self, queue: str, action: str, changes: Sequence[Change], **options: Any
    ) -> list[Outcome]:
        return self.store_for(queue).apply(queue, action, changes, **options)

    def preview(
        self, queue: str, action: str, where: Filter, *, role: Role, **options: Any
    ) -> dict[tuple[str, str], int]:
        return self.store_for(queue).preview(queue, action, where, role=role, **options)

    def sweep(self, queue: str, move: Move, **options: Any) -> int:
        return self.store_for(queue).sweep(queue, move, **options)

    def job(self, job_id: str) -> Job | None:
        location = self._locate(job_id)
        return location and location[1]

    def _locate(self, job_id: str) -> tuple[Store, Job] | None:
        """The job and the store that holds its queue now; stale copies elsewhere do not count."""
        for store in (self.main, *self.secondary_stores):
            job = store.job(job_id)
            if job is not None and self.store_for(job.queue) is store:
                return store, job
        return None

    def find(self, queue: str, ids: Sequence[str]) -> dict[str, Job]:
        return self.store_for(queue).find(queue, ids)

    def states(self, queue: str, ids: Sequence[str]) -> dict[str, str]:
        return self.store_for(queue).states(queue, ids)

    def ids_by_key(self, queue: str, tenant: str, keys: Sequence[str]) -> dict[str, str]:
        return self.store_for(queue).ids_by_key(queue, tenant, keys)

    def jobs(
        self, queue: str, where: Filter, *, limit: int = 100, cursor: str | None = None
    ) -> Page:
        return self.store_for(queue).jobs(queue, where, limit=limit, cursor=cursor)

    def events(self, job_id: str) -> list[Event]:
        location = self._locate(job_id)
        return [] if location is None else location[0].events(job_id)

    def notes(self, job_id: str) -> list[Note]:
        location = self._locate(job_id)
        return [] if location is None else location[0].notes(job_id)

    def add_note(self, queue: str, **details: Any) -> None:
        self.store_for(queue).add_note(queue, **details)

    def stats(self, queue: str, *, now: int | None = None) -> QueueStats:
        return self.store_for(queue).stats(queue, now=now)

    def backlog(self, queue: str, tenant: str, **options: Any) -> Backlog:
        return self.store_for(queue).backlog(queue, tenant, **options)

    def count_ahead(self, queue: str, job_id: str, *, limit: int) -> int | None:
        return self.store_for(queue).count_ahead(queue, job_id, limit=limit)

    def move_counts(self, queue: str) -> list[MoveCount]:
        return self.store_for(queue).move_counts(queue)

    def compact(self, queue: str) -> int:
        return self.store_for(queue).compact(queue)

    def pause(self, queue: str, **options: Any) -> None:
        self.store_for(queue).pause(queue, **options)

    def resume(self, queue: str, *, tenant: str = "") -> bool:
        return self.store_for(queue).resume(queue, tenant=tenant)

    def paused(self, queue: str) -> list[Pause]:
        return self.store_for(queue).paused(queue)

    def scan(self, queue: str) -> Iterator[tuple[Job, list[Event]]]:
        return self.store_for(queue).scan(queue)

    def ping(self) -> None:
        self.main.ping()

    def ping_secondary_stores(self) -> None:
        """Check that the secondary stores respond; only their own queues depend on them."""
        for store in self.secondary_stores:
            store.ping()

    def definition(self, queue: str) -> Definition | None:
        return self.store_for(queue).definition(queue)

    def queues(self) -> list[str]:
        """The queues of the main store and of every secondary store.

        All routed queues of an unreachable store are listed.
        """
        names = set(self.main.queues())
        for store in self.secondary_stores:
            routed_queues = {queue for queue, home in self.stores_by_queue.items() if home is store}
            try:
                names = (names - routed_queues) | (routed_queues & set(store.queues()))
            except StoreUnreachable:
                names |= routed_queues
        return sorted(names)

    def health(self) -> dict[str, str | int]:
        report = self.main.health()
        for store in self.secondary_stores:
            try:
                store_report = store.health()
            except StoreUnreachable:
                continue  # a health check pings it as well and reports that
            kind = str(store_report.pop("store"))
            report |= {f"{kind}_{name}": value for name, value in store_report.items()}
        return report

    def notification_count(self, queue: str) -> int:
        return self.store_for(queue).notification_count(queue)

    def wait(self, queue: str, since: int, timeout_s: float) -> None:
        self.store_for(queue).wait(queue, since, timeout_s)

    def wake(self, queue: str) -> None:
        self.store_for(queue).wake(queue)

    def close(self) -> None:
        for store in (self.main, *self.secondary_stores):
            store.close()
