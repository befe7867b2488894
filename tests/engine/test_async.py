"""Handlers that are ``async def``: many jobs at once on one loop, and nothing lost by it."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from kesin import (
    Act,
    BadInput,
    Failed,
    Job,
    ManualClock,
    NewJob,
    Queue,
    RunContext,
    StoreError,
    StoreUnreachable,
    Worker,
)
from kesin.store.sqlite.store import SqliteStore
from tests.engine.conftest import PATIENCE_S, Spy, Start, fill, job_of, moves, states
from tests.engine.test_suspects import lose, new_queue


class Gate:
    """An async handler that signals its start and waits until the test lets it return."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.go_on = threading.Event()
        self.running = 0
        self.most = 0
        self.cleaned_up: list[str] = []

    async def __call__(self, job: Job) -> dict[str, Any]:
        self.running += 1
        self.most = max(self.most, self.running)
        self.began.release()
        try:
            while not self.go_on.is_set():  # noqa: ASYNC110  # another thread sets it
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.cleaned_up.append(job.id)
            raise
        finally:
            self.running -= 1
        return {"n": job.payload["n"]}

    def wait(self, jobs: int) -> None:
        for _ in range(jobs):
            assert self.began.acquire(timeout=PATIENCE_S)


async def send(_job: Job) -> None: ...


class Sender:
    async def __call__(self, job: Job, run: RunContext) -> None:
        assert run.job is job
        assert not run.lost


def settled(queue: Queue, **counts: int) -> bool:
    """Whether the jobs get into these states before patience ends."""
    for _ in range(round(PATIENCE_S / 0.01)):
        if states(queue) == counts:
            return True
        assert not threading.Event().wait(0.01)
    return False


@pytest.mark.parametrize("handler", [send, partial(send), Sender(), Sender().__call__])
def test_every_kind_of_async_handler_is_awaited(queue: Queue, handler: Any):
    fill(queue, 2)
    assert Worker(queue, handler).drain() == 2
    assert states(queue) == {"done": 2}
    fill(queue, 1)

    async def inside_a_running_loop() -> int:
        return Worker(queue, handler).drain()

    assert asyncio.run(inside_a_running_loop()) == 1


def test_results_failures_and_exceptions_are_those_of_plain_handlers(queue: Queue):
    async def work(job: Job) -> Any:
        await asyncio.sleep(0)
        match job.payload["n"]:
            case 0:
                return {"fine": True}
            case 1:
                raise Failed("NO_STREET", "where?", category="PERMANENT")
            case 2:
                raise KeyError("missing")
            case 3:
                raise asyncio.CancelledError
            case 4:
                return object()
        return Act("no_such_action")

    ids = fill(queue, 6)
    Worker(queue, work).run_once()
    assert job_of(queue, ids[0]).result == {"fine": True}
    codes = [job_of(queue, job_id).error_code for job_id in ids[1:]]
    assert codes == ["NO_STREET", "KeyError", "CancelledError", "BAD_ANSWER", "BAD_ANSWER"]
    assert states(queue) == {"done": 1, "failed": 3, "ready": 2}
    assert "KeyError" in str(queue.events(ids[2])[-1].note)


def test_so_many_run_at_once_and_no_more(queue: Queue, running: Start):
    gate = Gate()
    fill(queue, 10)
    running(Worker(queue, gate, concurrency=4))
    gate.wait(4)
    assert not gate.began.acquire(timeout=0.05)
    gate.go_on.set()
    gate.wait(6)
    assert settled(queue, done=10)
    assert gate.most == 4


def test_a_slow_job_holds_nobody_up(queue: Queue, running: Start):
    seen: list[int] = []
    over = threading.Event()

    async def work(job: Job) -> None:
        while job.payload["n"] == 0 and not over.is_set():  # noqa: ASYNC110  # set by others
            await asyncio.sleep(0.001)
        seen.append(job.payload["n"])
        if len(seen) == 20:
            over.set()

    fill(queue, 21)
    running(Worker(queue, work, concurrency=2))
    assert settled(queue, done=21)
    assert seen[-1] == 0


def test_jobs_that_come_later_are_picked_up_while_others_run(queue: Queue, running: Start):
    gate = Gate()
    fill(queue, 1)
    running(Worker(queue, gate, poll_s=10_000))
    gate.wait(1)
    fill(queue, 2)
    gate.wait(2)
    gate.go_on.set()
    assert settled(queue, done=3)


def test_a_stop_waits_for_running_jobs(queue: Queue, running: Start):
    gate = Gate()
    fill(queue, 3)
    worker = running(Worker(queue, gate))
    gate.wait(3)
    worker.stop()
    fill(queue, 1)
    gate.go_on.set()
    worker.join()
    assert states(queue) == {"done": 3, "ready": 1}


def test_after_the_grace_period_handlers_are_cancelled_and_then_their_jobs_released(queue: Queue, running: Start):
    gate = Gate()
    ids = fill(queue, 2)
    worker = running(Worker(queue, gate, grace_s=0))
    gate.wait(2)
    worker.stop()
    cleaned_up = []
    release = worker.release_claims
    worker.release_claims = lambda jobs: cleaned_up.extend(gate.cleaned_up) or release(jobs)  # type: ignore[method-assign, func-returns-value]
    worker.join()
    assert sorted(cleaned_up) == sorted(ids)
    assert states(queue) == {"ready": 2}
    assert [moves(queue, job_id)[-1] for job_id in ids] == ["release"] * 2


def test_a_handler_that_ends_its_work_when_it_is_cancelled_is_done(queue: Queue, running: Start):
    began = threading.Event()

    async def work(_job: Job) -> Any:
        began.set()
        try:
            await asyncio.sleep(10_000)
        except asyncio.CancelledError:
            return {"half": True}

    [job_id] = fill(queue, 1)
    worker = running(Worker(queue, work, grace_s=0))
    assert began.wait(PATIENCE_S)
    worker.stop()
    worker.join()
    assert (job_of(queue, job_id).state, job_of(queue, job_id).result) == ("done", {"half": True})


def test_an_error_of_the_loop_itself_loses_no_job(queue: Queue, running: Start, monkeypatch: pytest.MonkeyPatch):
    gate = Gate()
    real, broken = asyncio.wait, threading.Event()

    async def wait(*args: Any, **how: Any) -> Any:
        if gate.running and not broken.is_set():
            broken.set()
            raise RuntimeError("odd")
        return await real(*args, **how)

    monkeypatch.setattr(asyncio, "wait", wait)
    [job_id] = fill(queue, 1)
    running(Worker(queue, gate))
    assert broken.wait(PATIENCE_S)
    assert settled(queue, ready=1)
    assert job_of(queue, job_id).error_code == "CancelledError"


def test_a_handler_that_blocks_the_loop_keeps_its_lease_and_those_of_others(
    queue: Queue, store: SqliteStore, clock: ManualClock, running: Start
):
    renewals = Spy(store, "renew")
    gate = Gate()

    async def work(job: Job) -> Any:
        if job.payload["n"]:
            return await gate(job)
        while not gate.running:  # noqa: ASYNC110  # until the other one awaits
            await asyncio.sleep(0)
        for _ in range(3):  # blocks the loop until leases were renewed without it
            clock.advance(0.5)
            assert renewals.made.acquire(timeout=PATIENCE_S)
        gate.go_on.set()
        return None

    slow = fill(queue, 2)[1]
    running(Worker(queue, work, lease_seconds=1))
    assert settled(queue, done=2)
    assert moves(queue, slow) == ["enqueue", "claim", "complete"]


def test_errors_of_the_store_end_neither_the_loop_nor_what_it_runs(queue: Queue, store: SqliteStore, running: Start):
    claims = Spy(store, "claim", [StoreUnreachable("away"), ValueError("odd")])
    fill(queue, 3)
    running(Worker(queue, send, poll_s=0.01))
    assert settled(queue, done=3)
    assert len(claims.calls) > 2
    Spy(store, "apply", [ValueError("odd")])
    fill(queue, 1)
    assert settled(queue, done=3, running=1)  # recovered when its lease ends


def test_a_suspect_runs_while_nothing_else_does(running: Start):
    clock = ManualClock()
    queue = new_queue(clock)
    suspects = lose(queue, clock, 5)
    [fresh] = fill(queue, 1)
    held: list[set[str]] = []

    async def work(_job: Job) -> None:
        held.append({job.id for job in worker.leases.held()})

    worker = running(Worker(queue, work))
    assert settled(queue, done=6)
    assert held[0] == {fresh}
    groups = {frozenset(jobs) for jobs in held[1:]}
    assert {job for group in groups for job in group} == set(suspects)
    assert max(map(len, groups)) == 2


def test_suspects_that_cannot_be_released_run_one_by_one(running: Start):
    clock = ManualClock()
    queue = new_queue(clock, max_returns=0)
    lose(queue, clock, 3)
    gate = Gate()
    gate.go_on.set()
    running(Worker(queue, gate))
    assert settled(queue, done=3)
    assert gate.most == 1


def test_a_coroutine_enqueues_beside_its_loop(queue: Queue):
    async def test() -> Any:
        first = await queue.aio.enqueue({"n": 1}, key="k")
        again, refused = await queue.aio.enqueue_many([NewJob({"n": 1}, key="k"), NewJob(object())])
        with queue.store.transaction(), pytest.raises(StoreError, match="inside a transaction"):
            await queue.aio.enqueue({"n": 2})
        return first, again, refused, await queue.aio.job(first.id)

    first, again, refused, job = asyncio.run(test())
    assert (first.result, again.result, again.id) == ("inserted", "duplicate", first.id)
    assert isinstance(refused, BadInput)
    assert (job.id, states(queue)) == (first.id, {"ready": 1})


def test_options_without_effect_are_refused(queue: Queue):
    for handler, options, why in (
        (lambda _job: None, {"concurrency": 3}, "concurrency is only for async handlers"),
        (send, {"threads": 2}, "cannot use threads or batches"),
        (send, {"batch": 10}, "cannot use threads or batches"),
        (send, {"concurrency": 0}, "concurrency must be positive"),
    ):
        with pytest.raises(ValueError, match=why):
            Worker(queue, handler, **options)  # type: ignore[arg-type]
    for first, then in ((send, lambda _job: None), (lambda _job: None, send)):
        worker = Worker(queue, first)
        with pytest.raises(ValueError, match="cannot take the place"):
            worker.handler = then
