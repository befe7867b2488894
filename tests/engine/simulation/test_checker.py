"""The simulator catches deliberate bugs in the engine; and the checks of a worker's claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from kesin import Done, NewJob, Queue, Schedule, StaleClaim, task_lifecycle
from kesin.engine.async_thread import AsyncWorkerThread
from kesin.engine.leases import Leases
from kesin.engine.results import RunContext, Transaction
from kesin.engine.simulation.checker import WorkerChecker, signed_result
from kesin.engine.simulation.oracle_moves import BrokenPromise
from kesin.engine.simulation.simulate import simulate
from kesin.engine.worker_thread import WorkerThread
from kesin.foundation.clock import ManualClock
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change, Job
from kesin.store.records import Outcome
from kesin.store.sql.store import SqlStore
from kesin.store.sqlite.store import SqliteStore

STEPS = 300
Real = Callable[..., Any]


def swap_results(real: Real) -> Real:
    def write(self: WorkerThread, results: list[tuple[Job, Any]]) -> None:
        values = [value for _, value in results]
        rotated = [*values[1:], *values[:1]]
        real(self, [(job, value) for (job, _), value in zip(results, rotated, strict=True)])

    return write


def skip_last(real: Real) -> Real:
    return lambda self, results: real(self, results[:-1] if len(results) > 1 else results)


def handle_twice(real: Real) -> Real:
    return lambda self, *args: (real(self, *args), real(self, *args))[1]


def do_nothing(_real: Real) -> Real:
    return lambda *_args: None


def change_stale_outcomes(**changes: Any) -> Callable[[Real], Real]:
    def patch(real: Real) -> Real:
        def apply(*args: Any, **kwargs: Any) -> list[Outcome]:
            return [
                outcome._replace(**changes) if outcome.reason == "stale" else outcome
                for outcome in real(*args, **kwargs)
            ]

        return apply

    return patch


def report_wrong_state(real: Real) -> Real:
    return lambda *args, **kwargs: [outcome._replace(state="ready") for outcome in real(*args, **kwargs)]


def end_separately(_real: Real) -> Real:
    @contextmanager
    def transaction(self: RunContext, action: str) -> Iterator[Transaction]:
        result = Transaction(None)
        yield result
        self.move(action, result=result.result)

    return transaction


def keep_what_lost_its_claim(_real: Real) -> Real:
    @contextmanager
    def transaction(self: RunContext, action: str) -> Iterator[Transaction]:
        with self._queue.store.transaction() as connection:
            result = Transaction(connection)
            yield result
            with suppress(StaleClaim):
                self.move(action, result=result.result)

    return transaction


def commit_at_once(real: Real) -> Real:
    @contextmanager
    def joining(self: SqlStore, connection: Any) -> Iterator[None]:
        with real(self, connection):
            yield
        connection.execute("COMMIT")
        connection.execute("BEGIN")

    return joining


def await_twice(real: Real) -> Real:
    async def handle(self: AsyncWorkerThread, job: Job) -> None:
        await real(self, job)
        await real(self, job)

    return handle


def catch_up_with_all(_real: Real) -> Real:
    return lambda self, since, now: [*range(since, now + 1, 60_000_000)][-9:]


def name_the_hour(real: Real) -> Real:
    return lambda self, at: real(self, at - at % 3_600_000_000)


def let_the_key_go(real: Real) -> Real:
    return lambda self, at: replace(real(self, at), once=False)


SEED = 5  # catches most of them soon
SEEDS = {"an effect is kept though the claim was lost": 6}
BUGS: dict[str, tuple[type, str, Callable[[Real], Real], str]] = {
    "results of two jobs are swapped": (WorkerThread, "_write_results", swap_results, "conduct"),
    "the last result is not written": (WorkerThread, "_write_results", skip_last, "conduct"),
    "a job is worked on twice": (WorkerThread, "_run_handler", handle_twice, "conduct"),
    "a coroutine is awaited twice": (AsyncWorkerThread, "_handle", await_twice, "conduct"),
    "results of coroutines are not written": (AsyncWorkerThread, "_write", do_nothing, "conduct"),
    "a job is committed before its producer": (SqlStore, "joining", commit_at_once, "change"),
    "leases are never dropped": (Leases, "drop", do_nothing, "conduct"),
    "a lost claim is reported as done": (
        SqlStore,
        "apply",
        change_stale_outcomes(result="already", reason=""),
        "already",
    ),
    "an existing job is reported as unknown": (
        SqlStore,
        "apply",
        change_stale_outcomes(result="unknown", reason=""),
        "answer",
    ),
    "an outcome with another state": (SqlStore, "apply", report_wrong_state, "answer"),
    "no notes are left": (SqlStore, "_add_notes", do_nothing, "note"),
    "an effect is committed before its job ends": (RunContext, "transaction", end_separately, "together"),
    "an effect is kept though the claim was lost": (RunContext, "transaction", keep_what_lost_its_claim, "together"),
    "more ticks are made up for than asked": (Schedule, "missed", catch_up_with_all, "tick"),
    "a tick under the key of another": (Schedule, "key_at", name_the_hour, "tick"),
    "a tick whose key is let go": (Schedule, "job_at", let_the_key_go, "tick"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_deliberate_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch):
    owner, name, patch, rule = BUGS[bug]
    monkeypatch.setattr(owner, name, patch(getattr(owner, name)))
    run = simulate(task_lifecycle(), seed=SEEDS.get(bug, SEED), steps=STEPS, shrink_attempts=0)
    assert run.failure is not None, "the bug was not caught"
    assert run.failure.rule == rule, str(run.failure)


@pytest.fixture
def claimed() -> Job:
    queue = Queue("work", task_lifecycle(), SqliteStore(":memory:"), clock=ManualClock(), seed=1)
    queue.enqueue_many([NewJob({})])
    [job] = queue.claim("worker", limit=1)
    return job


def released(job: Job, *, done: bool) -> tuple[str, list[Change], list[Outcome]]:
    outcome = Outcome("moved" if done else "refused", job.id)
    return "release", [Change(job.id, job.claim_seq)], [outcome]


def test_a_released_job_is_not_handled(claimed: Job):
    checker = WorkerChecker()
    checker.record_claims([claimed])
    checker.check_outcomes(*released(claimed, done=True))
    checker.check_idle([])
    with pytest.raises(BrokenPromise, match="given up"):
        checker.begin_handler(claimed)


def test_a_handled_job_is_not_released(claimed: Job):
    checker = WorkerChecker()
    checker.record_claims([claimed])
    checker.begin_handler(claimed)
    checker.end_handler(claimed, "a result")
    with pytest.raises(BrokenPromise, match="after it was worked on"):
        checker.check_outcomes(*released(claimed, done=True))


def test_a_job_that_cannot_be_released_may_be_handled_or_left(claimed: Job):
    checker = WorkerChecker()
    checker.record_claims([claimed])
    checker.check_outcomes(*released(claimed, done=False))
    checker.check_idle([])
    checker.begin_handler(claimed)
    checker.end_handler(claimed, "a result")
    result = canonical_json(Done(signed_result(claimed, 1)).result)
    finish = Change(claimed.id, claimed.claim_seq, result=result)
    checker.check_outcomes("complete", [finish], [Outcome("moved", claimed.id)])
    checker.check_idle([])
