"""Deliberate bugs in the engine's own Python, for the simulator; and what a claim is owed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kesin import Done, New, Queue, task_lifecycle
from kesin.engine.leases import Leases
from kesin.engine.simulation.checker import Conduct, signed
from kesin.engine.simulation.oracle import BrokenPromise
from kesin.engine.simulation.simulate import simulate
from kesin.engine.worker_thread import Lane
from kesin.foundation.clock import ManualClock
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change, Job
from kesin.store.records import Outcome
from kesin.store.sql.store import SqlStore
from kesin.store.sqlite.store import SqliteStore

STEPS = 300
Real = Callable[..., Any]


def swaps_answers(real: Real) -> Real:
    def write(self: Lane, results: list[tuple[Job, Any]]) -> None:
        answers = [answer for _, answer in results]
        turned = [*answers[1:], *answers[:1]]
        real(self, [(job, answer) for (job, _), answer in zip(results, turned, strict=True)])

    return write


def forgets_the_last(real: Real) -> Real:
    return lambda self, results: real(self, results[:-1] if len(results) > 1 else results)


def works_twice(real: Real) -> Real:
    return lambda self, job: (real(self, job), real(self, job))[1]


def nothing(_real: Real) -> Real:
    return lambda *_args: None


def tells_of_lost_claims(**changes: Any) -> Callable[[Real], Real]:
    def told(real: Real) -> Real:
        def apply(*args: Any, **how: Any) -> list[Outcome]:
            return [
                one._replace(**changes) if one.reason == "stale" else one
                for one in real(*args, **how)
            ]

        return apply

    return told


def tells_a_wrong_state(real: Real) -> Real:
    return lambda *args, **how: [one._replace(state="ready") for one in real(*args, **how)]


BUGS: dict[str, tuple[type, str, Callable[[Real], Real], str]] = {
    "answers of two jobs are swapped": (Lane, "_write", swaps_answers, "conduct"),
    "the last answer is not written": (Lane, "_write", forgets_the_last, "conduct"),
    "a job is worked on twice": (Lane, "_answer", works_twice, "conduct"),
    "leases are kept for ever": (Leases, "drop", nothing, "conduct"),
    "a lost claim is told to be done": (
        SqlStore,
        "apply",
        tells_of_lost_claims(result="already", reason=""),
        "already",
    ),
    "a job that is there is told not to be": (
        SqlStore,
        "apply",
        tells_of_lost_claims(result="unknown", reason=""),
        "answer",
    ),
    "an answer with another state": (SqlStore, "apply", tells_a_wrong_state, "answer"),
    "no notes are left": (SqlStore, "_remark", nothing, "note"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_deliberate_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch):
    where, name, made_wrong, rule = BUGS[bug]
    monkeypatch.setattr(where, name, made_wrong(getattr(where, name)))
    run = simulate(task_lifecycle(), seed=1, steps=STEPS, tries=0)
    assert run.failure is not None, "nobody saw it"
    assert run.failure.rule == rule, str(run.failure)


@pytest.fixture
def claimed() -> Job:
    queue = Queue("work", task_lifecycle(), SqliteStore(":memory:"), clock=ManualClock(), seed=1)
    queue.enqueue_many([New({})])
    [job] = queue.claim("worker", limit=1)
    return job


def released(job: Job, *, done: bool) -> tuple[str, list[Change], list[Outcome]]:
    outcome = Outcome("moved" if done else "refused", job.id)
    return "release", [Change(job.id, job.claim_seq)], [outcome]


def test_what_was_given_back_is_not_worked_on(claimed: Job):
    conduct = Conduct()
    conduct.given([claimed])
    conduct.sent(*released(claimed, done=True))
    conduct.rest([])
    with pytest.raises(BrokenPromise, match="given up"):
        conduct.begin(claimed)


def test_what_was_worked_on_is_not_given_back(claimed: Job):
    conduct = Conduct()
    conduct.given([claimed])
    conduct.begin(claimed)
    conduct.end(releases=False)
    with pytest.raises(BrokenPromise, match="after it was worked on"):
        conduct.sent(*released(claimed, done=True))


def test_what_cannot_be_given_back_may_be_worked_on_or_left(claimed: Job):
    conduct = Conduct()
    conduct.given([claimed])
    conduct.sent(*released(claimed, done=False))
    conduct.rest([])
    conduct.begin(claimed)
    conduct.end(releases=False)
    result = canonical_json(Done(signed(claimed, 1)).result)
    finish = Change(claimed.id, claimed.claim_seq, result=result)
    conduct.sent("complete", [finish], [Outcome("moved", claimed.id)])
    conduct.rest([])
