"""An application in a simulation: it enqueues jobs in the transactions of its own writes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.simulation.checker import StoreChecker
from kesin.engine.simulation.faulty_store import FaultyStore
from kesin.engine.simulation.oracle_moves import break_promise
from kesin.store.contract import Store
from kesin.store.records import Outcome
from kesin.store.sql.store import SqlStore

# Opens a transaction of the application; it is committed at the end of the block.
Connect = Callable[[Store], AbstractContextManager[Any]]
_TABLE = "CREATE TABLE IF NOT EXISTS app_order (job TEXT PRIMARY KEY)"


class _RolledBackError(Exception):
    """The application changed its mind."""


class Application:
    """Writes an order for each job that it enqueues: both exist, or neither."""

    def __init__(self, store: Store, connect: Connect | None) -> None:
        self._store = store
        self._connect = connect
        self.connects = isinstance(store, SqlStore)  # else there is no ``within``
        self._enqueued: set[str] = set()  # whatever became of the transaction

    def _begin(self) -> AbstractContextManager[Any]:
        return self._connect(self._store) if self._connect else self._store.transaction()

    def order(
        self, process: FaultyStore, queue: Queue, news: Sequence[NewJob], *, commits: bool
    ) -> None:
        """Enqueue jobs one by one, each with its order, in one transaction."""
        with suppress(_RolledBackError), process.transaction(self._begin) as connection:
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
        with self._begin() as connection:
            connection.execute(_TABLE)
            orders = {row[0] for row in connection.execute("SELECT job FROM app_order")}
        jobs = self._enqueued & checker.names.keys()
        if orders != jobs:
            alone = min(orders ^ jobs)
            break_promise("together", f"{alone} is not there with its order, or it without it")
