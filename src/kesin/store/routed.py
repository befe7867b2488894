"""Routed queues in stores of their own, all else in the main one; no transaction spans two."""

from abc import ABCMeta
from collections.abc import Mapping
from contextlib import AbstractContextManager
from inspect import signature
from typing import Any

from kesin.lifecycle.model import Job
from kesin.store.contract import Store
from kesin.store.errors import StoreUnreachable
from kesin.store.notify import Notified
from kesin.store.records import Event, Note


def _of_queue(name: str) -> Any:
    """The method of this name, of the store that holds the queue."""

    def call(self: "RoutedStore", queue: str, *values: Any, **named: Any) -> Any:
        return getattr(self.store_for(queue), name)(queue, *values, **named)

    return call


_METHODS = {name: method for kind in (Store, Notified) for name, method in vars(kind).items()}
_BY_QUEUE = {  # those whose first argument is the queue
    name: _of_queue(name)
    for name, method in _METHODS.items()
    if callable(method) and list(signature(method).parameters)[1:2] == ["queue"]
}
_QueueRouter: Any = ABCMeta("_QueueRouter", (Store,), _BY_QUEUE)


class RoutedStore(_QueueRouter):  # type: ignore[misc]  # a Store: what names a queue is routed
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

    def transaction(self) -> AbstractContextManager[Any]:
        return self.main.transaction()

    def joining(self, connection: Any) -> AbstractContextManager[None]:
        return self.main.joining(connection)

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

    def events(self, job_id: str) -> list[Event]:
        location = self._locate(job_id)
        return [] if location is None else location[0].events(job_id)

    def notes(self, *job_ids: str) -> list[Note]:
        located = {job_id: self._locate(job_id) for job_id in job_ids}
        return [note for job_id, at in located.items() if at for note in at[0].notes(job_id)]

    def ping(self) -> None:
        self.main.ping()

    def ping_secondary_stores(self) -> None:
        """Check that the secondary stores respond; only their own queues depend on them."""
        for store in self.secondary_stores:
            store.ping()

    def queues(self) -> list[str]:
        """The queues of every store; of an unreachable one, those that are routed to it."""
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

    def close(self) -> None:
        for store in (self.main, *self.secondary_stores):
            store.close()
