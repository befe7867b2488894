"""A queue on a store in memory under a clock that the test moves; helpers for worker threads."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from kesin import Job, Queue, Worker, task_lifecycle
from kesin.engine.replay import verify
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.budget import Backoff
from kesin.store.sqlite.store import SqliteStore

Start = Callable[[Worker], Worker]
PATIENCE_S = 20.0  # how long a thread may take to get somewhere on a busy machine


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    with closing(SqliteStore(":memory:")) as opened:
        yield opened


@pytest.fixture
def queue(store: SqliteStore, clock: ManualClock) -> Iterator[Queue]:
    """A queue of tasks; after the test its history must replay."""
    lifecycle = task_lifecycle(max_attempts=3, backoff=Backoff((10, 100)))
    yield Queue("work", lifecycle, store, clock=clock, seed=1)
    assert [str(difference) for difference in verify(store, "work").differences] == []


@pytest.fixture
def running() -> Iterator[Start]:
    """Starts workers; after the test stops them and checks that their threads have ended."""
    started: list[Worker] = []

    def start(worker: Worker) -> Worker:
        started.append(worker)
        worker.start()
        return worker

    yield start
    for worker in started:
        worker.stop()
        worker.queue.store.resume(worker.queue.name)  # wakes the threads that wait for a job
        worker.join()
        for thread in worker._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


class Meeting:
    """A handler that signals its start and waits until the test lets it return."""

    def __init__(self, result: Any = None) -> None:
        self.began = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.jobs: list[Job] = []
        self.result = result

    def __call__(self, job: Job) -> Any:
        self.jobs.append(job)
        self.began.release()
        assert self.go_on.wait(PATIENCE_S)
        return self.result

    def wait(self, jobs: int = 1) -> None:
        for _ in range(jobs):
            assert self.began.acquire(timeout=PATIENCE_S)


def fill(queue: Queue, jobs: int, **kwargs: Any) -> list[str]:
    return [queue.enqueue({"n": n}, **kwargs).id for n in range(jobs)]


class Spy:
    """Records the calls of a store's method and raises the given failures first."""

    def __init__(self, store: Any, method: str, failures: Sequence[Exception] = ()) -> None:
        self.calls: list[dict[str, Any]] = []
        self.failures = list(failures)
        self.made = threading.Semaphore(0)
        self._real = getattr(store, method)
        setattr(store, method, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append({"args": args, **kwargs})
        if self.failures:
            raise self.failures.pop(0)
        result = self._real(*args, **kwargs)
        self.made.release()
        return result

    def values(self, name: str) -> list[Any]:
        return [call[name] for call in self.calls]


def states(queue: Queue) -> dict[str, int]:
    """State → number of jobs, without empty states."""
    return {state: n for state, n in queue.stats().states.items() if n}


def only(queue: Queue) -> Job:
    [job] = queue.jobs().jobs
    return job


def job_of(queue: Queue, job_id: str) -> Job:
    job = queue.job(job_id)
    assert job is not None
    return job


def moves(queue: Queue, job_id: str) -> list[str]:
    return [event.move for event in queue.events(job_id)]
