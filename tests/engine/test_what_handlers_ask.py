"""A time of one's own for a retry, waits, cancels, time limits, results, typed payloads."""

from __future__ import annotations

import asyncio
import pickle
import threading
from dataclasses import dataclass

import pytest
from pydantic import BaseModel, computed_field
from pydantic import Field as PydanticField

from kesin import BadInput, Failed, Job, Queue, Wait, Worker, open_store, task_lifecycle
from kesin.engine.async_thread import AsyncWorkerThread
from tests.engine.conftest import only

PATIENCE_S = 60


def test_a_failure_says_when_to_try_again(queue, clock):
    queue.enqueue({})

    def handler(job: Job) -> None:
        raise Failed("BUSY", "come back", retry_in_s=77)

    Worker(queue, handler).drain()
    job = only(queue)
    assert (job.state, job.error_code, job.move) == ("ready", "BUSY", "retry_later")
    assert (job.run_at or 0) - job.moved_at == 77_000_000
    clock.advance(78)
    Worker(queue, handler).drain()
    clock.advance(78)
    Worker(queue, handler).drain()
    assert (only(queue).state, only(queue).error_code) == ("failed", "BUSY")  # it has a budget


def test_a_code_that_is_not_tried_again_counts_for_more_than_a_time(queue, caplog):
    queue.enqueue({})
    Worker(queue, lambda job: Failed("BAD", category="VALIDATION", retry_in_s=5)).drain()
    assert (only(queue).state, only(queue).error_code) == ("failed", "BAD")
    assert "retry_in_s_without_effect" in caplog.text


def test_an_impossible_time_is_refused(queue):
    times = iter((-1, float("inf"), float("nan"), 1e11, "soon"))
    for _ in range(5):
        queue.enqueue({})
    Worker(queue, lambda job: Failed("BUSY", retry_in_s=next(times))).drain()  # type: ignore[arg-type]
    assert {(job.state, job.error_code) for job in queue.jobs().jobs} == {("failed", "BAD_ANSWER")}


def test_a_wait_looks_again_later_and_uses_an_attempt(queue, clock):
    queue.enqueue({})
    looks = []

    def handler(job: Job) -> Wait | None:
        looks.append(job.attempts_left)
        return Wait(60) if len(looks) < 3 else None

    for _ in range(3):
        Worker(queue, handler).drain()
        clock.advance(61)
    assert looks == [2, 1, 0]
    assert (only(queue).state, only(queue).error_code) == ("done", None)


# Cancelling a job that runs


def test_a_running_job_is_cancelled_and_its_handler_sees_it(queue, clock):
    queue.enqueue({})
    seen = []

    def handler(job: Job, run) -> str:
        seen.append(run.cancelled)
        queue.act("cancel", actor="ada", ids=[job.id], reason="wrong customer")
        clock.advance(2)
        seen.append(run.cancelled)
        return "done all the same"

    Worker(queue, handler).drain()
    assert seen == [False, True]
    job = only(queue)
    assert (job.state, job.error_code, job.result) == ("failed", "CANCELLED", None)
    assert job.error_message == "cancelled while it ran"


def test_an_async_handler_is_cancelled_when_its_claim_is_lost(tmp_path):
    """Its lease is renewed every half second here, and the renewal finds it gone."""
    store = open_store(tmp_path / "k.db")
    queue = Queue("task", task_lifecycle(lease_seconds=1), store)
    began, ended = threading.Event(), threading.Event()

    async def handler(job: Job) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    job_id = queue.enqueue({}).id
    worker = Worker(queue, handler)
    worker.start()
    assert began.wait(PATIENCE_S)
    queue.act("cancel", actor="ada", ids=[job_id])
    assert ended.wait(PATIENCE_S)
    worker.stop()
    worker.join()
    assert worker.leases.held() == []
    assert queue.job(job_id).error_code == "CANCELLED"
    store.close()


def test_the_cleanup_of_a_cancelled_handler_is_left_in_peace(tmp_path, monkeypatch):
    """It goes on while the worker looks at its tasks three times more."""
    store = open_store(tmp_path / "k.db")
    queue = Queue("task", task_lifecycle(lease_seconds=1), store)
    began, cleaned, passed = (threading.Event() for _ in range(3))
    passes: list[int] = []
    still_running = AsyncWorkerThread._still_running

    def counted(thread, tasks):
        passes.append(any(task.cancelling() for task in tasks))
        if sum(passes) > 3:
            passed.set()
        return still_running(thread, tasks)

    monkeypatch.setattr(AsyncWorkerThread, "_still_running", counted)

    async def handler(job: Job) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(passed.wait, PATIENCE_S)
            cleaned.set()

    job_id = queue.enqueue({}).id
    worker = Worker(queue, handler)
    worker.start()
    assert began.wait(PATIENCE_S)
    queue.act("cancel", actor="ada", ids=[job_id])
    assert cleaned.wait(PATIENCE_S)
    worker.stop()
    worker.join()
    store.close()


# Time limits


def test_an_async_handler_is_stopped_at_its_time_limit(queue):
    queue.enqueue({})

    async def handler(job: Job) -> None:
        await asyncio.Event().wait()

    Worker(queue, handler, time_limit_s=0.01).drain()
    job = only(queue)
    assert (job.state, job.error_code) == ("ready", "TIME_LIMIT")
    assert job.error_message == "the handler took longer than 0.01 s"


def test_a_plain_handler_fails_at_its_time_limit_and_what_it_returns_is_refused(queue, monkeypatch):
    queue.enqueue({})
    seen: list[object] = []
    over = threading.Event()

    def handler(job: Job, run) -> str:
        assert over.wait(PATIENCE_S)
        seen.append((run.lost, only(queue).error_code))
        return "too late"

    worker = Worker(queue, handler, time_limit_s=0.01)
    lose = worker.leases.lose

    def lost(job: Job) -> None:
        lose(job)
        over.set()

    monkeypatch.setattr(worker.leases, "lose", lost)
    worker.run_once()
    job = only(queue)
    assert seen == [(True, "TIME_LIMIT")]
    assert (job.state, job.error_code, job.result) == ("ready", "TIME_LIMIT", None)
    assert job.error_message == "the handler took longer than 0.01 s"
    assert worker.leases.lost == set()


def test_a_time_limit_begins_with_the_handler_and_ends_with_it(queue, monkeypatch):
    """Each job of a batch has the whole time, however many are before it."""
    for _ in range(3):
        queue.enqueue({})
    steps: list[str] = []

    class Timer(threading.Timer):
        def start(self) -> None:
            steps.append("start")

        def cancel(self) -> None:
            steps.append("end")

    monkeypatch.setattr(threading, "Timer", Timer)
    worker = Worker(queue, lambda job: steps.append("handler"), time_limit_s=30)
    worker.work_on([job.id for job in queue.jobs().jobs])
    assert steps == ["start", "handler", "end"] * 3


def test_a_job_that_was_lost_while_it_waited_in_its_batch_is_not_started(queue):
    ids = [queue.enqueue({}).id for _ in range(2)]
    handled = []

    def handler(job: Job) -> None:
        handled.append(job.id)
        [other] = [held for held in worker.leases.held() if held.id != job.id]
        worker.leases.lose(other)

    worker = Worker(queue, handler)
    worker.work_on(ids)
    assert len(handled) == 1
    assert worker.leases._held == {}


def test_a_time_limit_is_for_single_jobs(queue):
    with pytest.raises(ValueError, match="single jobs"):
        Worker(queue, batch_handler=lambda jobs: [], time_limit_s=5)
    with pytest.raises(ValueError, match="time_limit_s must be a timedelta or a number"):
        Worker(queue, lambda job: None, time_limit_s=float("nan"))
    with pytest.raises(ValueError, match="time_limit_s must be positive"):
        Worker(queue, lambda job: None, time_limit_s=0)


# Waiting for a result


def test_a_result_is_waited_for(tmp_path):
    store = open_store(tmp_path / "k.db")
    queue = Queue("task", task_lifecycle(), store)
    worker = Worker(queue, lambda job: {"sum": sum(job.payload)})
    job_id = queue.enqueue([1, 2, 3]).id
    worker.start()
    assert queue.wait(job_id, PATIENCE_S).result == {"sum": 6}
    assert asyncio.run(queue.aio.wait(job_id, PATIENCE_S)).state == "done"
    worker.stop()
    worker.join()
    store.close()


def test_waiting_coroutines_hold_no_threads(tmp_path):
    """Twice as many as the default pool has: the enqueue after them is not held up."""
    queue = Queue("task", task_lifecycle(), open_store(tmp_path / "k.db"))

    async def main() -> str:
        waiting = queue.enqueue({}).id
        waits = [asyncio.ensure_future(queue.aio.wait(waiting, PATIENCE_S)) for _ in range(80)]
        await asyncio.sleep(0)
        outcome = await queue.aio.enqueue({})
        for wait in waits:
            wait.cancel()
        return outcome.result

    assert asyncio.run(main()) == "inserted"


def test_a_wait_ends(queue):
    with pytest.raises(ValueError, match="timeout must be"):
        queue.wait("any", float("nan"))
    job_id = queue.enqueue({}).id
    with pytest.raises(TimeoutError, match="is still ready after"):
        queue.wait(job_id, 0.02)
    with pytest.raises(BadInput, match="has no job"):
        queue.wait("nothing", 1)


# Typed payloads


class Email(BaseModel):
    to: str = PydanticField(min_length=3)
    copies: int = 1


@dataclass
class Point:
    x: int
    y: int = 0


def test_a_payload_is_validated_and_handed_over_as_its_type():
    queue = Queue("mail", task_lifecycle(), open_store(":memory:"), payload=Email)
    queue.enqueue(Email(to="ada@example.org"))
    queue.enqueue({"to": "bob@example.org", "copies": 2})
    seen = []
    Worker(queue, lambda job: seen.append(job.payload)).drain()
    assert seen == [Email(to="ada@example.org"), Email(to="bob@example.org", copies=2)]
    [job, _] = queue.jobs().jobs
    assert queue.job(job.id).payload == job.payload == seen[1]
    assert queue.find([job.id])[job.id].payload == seen[1]
    assert pickle.loads(pickle.dumps(job)).payload == {"to": "bob@example.org", "copies": 2}


class Renamed(BaseModel):
    sender: str = PydanticField(alias="from")


class Derived(BaseModel, extra="forbid"):
    side: int

    @computed_field
    def area(self) -> int:
        return self.side**2


@pytest.mark.parametrize("value", [Renamed(**{"from": "ada"}), Derived(side=3)])
def test_what_a_type_writes_it_reads(value):
    queue = Queue("mail", task_lifecycle(), open_store(":memory:"), payload=type(value))
    queue.enqueue(value)
    [job] = queue.claim("w")
    assert job.payload == value


def test_a_dataclass_is_a_type_too_and_an_instance_with_wrong_values_is_refused():
    queue = Queue("points", task_lifecycle(), open_store(":memory:"), payload=Point)
    with pytest.raises(BadInput, match="payload"):
        queue.enqueue(Point("left", "right"))  # type: ignore[arg-type]
    queue.enqueue(Point(1, 2))
    [job] = queue.claim("w")
    assert job.payload == Point(1, 2)


def test_a_payload_of_another_shape_is_refused_and_a_stored_one_fails_its_job():
    store = open_store(":memory:")
    Queue("mail", task_lifecycle(), store).enqueue({"old": True})
    queue = Queue("mail", task_lifecycle(), store, payload=Email)
    for payload, why in (
        ({"to": "x"}, "payload.to: String should have at least 3 characters"),
        ({"to": "ada@example.org", "copies": "many"}, "payload.copies: Input should be"),
        ("text", "payload: Input should be"),
    ):
        with pytest.raises(BadInput, match=why):
            queue.enqueue(payload)
    Worker(queue, lambda job: job.payload.to).drain()
    assert only(queue).error_code == "ValidationError"
