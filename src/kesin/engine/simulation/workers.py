"""Real workers without waits, timers and threads, and an application with its own writes."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from typing import Any, Final, TypeVar

from kesin.engine.async_thread import AsyncWorkerThread
from kesin.engine.leases import Leases
from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.simulation.checker import StoreChecker, WorkerChecker
from kesin.engine.simulation.faulty_store import FaultyStore
from kesin.engine.simulation.oracle_moves import break_promise
from kesin.engine.worker import Worker
from kesin.lifecycle.model import Job
from kesin.store.contract import Store
from kesin.store.records import Outcome

CLAIMS: Final = 3  # of an async worker, until it stops
_TABLE: Final = "CREATE TABLE IF NOT EXISTS app_order (job TEXT PRIMARY KEY)"

T = TypeVar("T")


class _ManualLeases(Leases):
    """Leases without a thread: the schedule decides when they are renewed."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


class SimulatedWorker(Worker):
    """A worker that never waits: the clock is simulated."""

    def __init__(self, store: FaultyStore, queue: Queue, **options: Any) -> None:
        super().__init__(queue, **options)
        self.store = store
        self.checker = WorkerChecker()
        self.leases = _ManualLeases(queue, self.leases.lease_s)

    def pause(self, seconds: float) -> None:
        """The store was unreachable; retry at once."""

    def serve(self) -> None:
        """Serve some claims on an event loop, then stop; what still runs is cancelled."""
        with ThreadPoolExecutor(1) as pool:  # this thread may be inside the loop of another worker
            pool.submit(copy_context().run, _AsyncThread(self).serve).result()
        self.join()


class _AsyncThread(AsyncWorkerThread):
    """Claims and writes in the thread of its loop: only the schedule decides what comes first."""

    _claims_left = CLAIMS

    def serve(self) -> None:
        with asyncio.Runner(loop_factory=_timeless_loop) as runner:
            runner.run(self._serve(_AtOnce()))

    def _claim_or_wait(self, places: int) -> list[Job]:
        self._claims_left -= 1
        jobs = super()._claim_or_wait(places)
        if not self._claims_left:
            self.worker.stop()
        return jobs

    def _wait(self, notified: int) -> None:
        """Nothing is due; the next claim follows at once."""


class _AtOnce(Executor):
    """Makes every call when it is submitted, in the caller's thread."""

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(call(*args, **kwargs))
        except BaseException as problem:  # noqa: BLE001  # raised where the result is read
            future.set_exception(problem)
        return future


def _timeless_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose timers never end, however slow the machine is."""
    loop = asyncio.new_event_loop()
    loop.time = lambda: 0.0  # type: ignore[method-assign]
    return loop


def without_loop(handler: Coroutine[None, None, T]) -> T:
    """Run a coroutine that waits for nothing but its turn."""
    try:
        while True:
            handler.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result


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

    def order(self, process: FaultyStore, queue: Queue, news: Sequence[NewJob], *, commits: bool) -> None:
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
            break_promise("together", f"{min(alone)} or its order is missing")
