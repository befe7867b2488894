"""An application in a simulation: it enqueues jobs in the transactions of its own writes."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.simulation.checker import StoreChecker
from kesin.engine.simulation.faulty_store import FaultyStore
from kesin.engine.simulation.oracle_moves import break_promise
from kesin.store.contract import Store
from kesin.store.records import Outcome

_TABLE = "CREATE TABLE IF NOT EXISTS app_order (job TEXT PRIMARY KEY)"


class _RolledBackError(Exception):
    """The application changed its mind."""


class Application:
    """Writes an order for each job that it enqueues: both exist, or neither."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._enqueued: set[str] = set()  # whatever became of the transaction

    def begin(self) -> AbstractContextManager[Any]:
        """Open a transaction; a store in memory has no other connection than its own."""
        return self._store.transaction()

    def order(
        self, process: FaultyStore, queue: Queue, news: Sequence[NewJob], *, commits: bool
    ) -> None:
        """Enqueue jobs one by one, each with its order, in one transaction."""
        with suppress(_RolledBackError), process.transaction(self.begin) as connection:
            connection.execute(_TABLE)
            for new in news:
                [outcome] = queue.enqueue_many([new], within=connection)
                if isinstance(outcome, Outcome) and outcome.result == "inserted":
                    self._enqueued.add(outcome.id)
                    connection.execute(f"INSERT INTO app_order VALUES ('{outcome.id}')")  # noqa: S608
            if not commits:
                raise _RolledBackError

    def check(self, checker: StoreChecker) -> None:
        """Every order has had its job, and every job its order."""
        with self.begin() as connection:
            connection.execute(_TABLE)
            orders = {row[0] for row in connection.execute("SELECT job FROM app_order")}
        if alone := orders ^ (self._enqueued & checker.names.keys()):
            break_promise("together", f"{min(alone)} is there without its order, or it without it")
