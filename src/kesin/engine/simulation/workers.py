"""The workers of a simulation: the real ones, without waits, timers or threads of their own."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final, TypeVar

from kesin.engine.async_thread import AsyncWorkerThread
from kesin.engine.leases import Leases
from kesin.engine.queue import Queue
from kesin.engine.simulation.checker import WorkerChecker
from kesin.engine.simulation.faulty_store import FaultyStore
from kesin.engine.worker import Worker
from kesin.lifecycle.model import Job

CLAIMS: Final = 3  # of an async worker, until it stops

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
