"""The plain lifecycle, row by row."""

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Change, apply_move, failing_guard
from kesin.lifecycle.task import task_lifecycle
from tests.lifecycle.adversary import NOW, new_job
from tests.lifecycle.plain import context
from tests.lifecycle.table import (
    CLAIMED,
    LEASE,
    LOST,
    NO_CLAIM,
    NO_ERROR,
    PAST,
    SECOND,
    STALE,
    Row,
    error,
    hold,
    rows,
)

TASK = task_lifecycle()
OLD = error("OLD", "AUTH", "before")
ERROR_INPUT = {"error_code": "NEW", "error_category": "TRANSIENT", "error_message": "after"}
SPENT = {"attempt_count": 5}
TIRED = {"attempt_count": 6, "attempt_base": 2, "return_count": 1}
PLAIN_ROWS = {
    "claim counts an attempt": Row(
        "claim",
        "worker",
        "ready",
        path="claim: ready → running",
        then={"attempt_count": 1, "worker": "worker-2", "lease_until": NOW + LEASE},
    ),
    "claim needs budget": Row("claim", "worker", "ready", given=SPENT, refused="budget_left"),
    "complete keeps the result": Row(
        "complete",
        "worker",
        "running",
        given={**CLAIMED, **OLD},
        change={"result": "[1]"},
        path="complete: running → done",
        then={**NO_CLAIM, **NO_ERROR, "result": "[1]", "finished_at": NOW},
    ),
    "complete from a worker that lost its claim is refused": Row(
        "complete",
        "worker",
        "running",
        given=CLAIMED,
        change={"token": STALE},
        refused="holds_claim",
    ),
    "fail keeps the error": Row(
        "fail",
        "worker",
        "running",
        given=CLAIMED,
        change=ERROR_INPUT,
        path="fail: running → failed",
        then={**NO_CLAIM, **error("NEW", "TRANSIENT", "after"), "finished_at": NOW},
    ),
    "release returns the attempt": Row(
        "release",
        "worker",
        "running",
        given=CLAIMED,
        path="release: running → ready",
        then={**NO_CLAIM, "attempt_base": 1, "return_count": 1, "run_at": NOW},
    ),
    "release is refused once two attempts were returned": Row(
        "release", "worker", "running", given={**CLAIMED, "return_count": 2}, refused="returns_left"
    ),
    "attempt_cap fails a spent job": Row(
        "attempt_cap",
        "clock",
        "ready",
        given=SPENT,
        path="attempt_cap: ready → failed",
        then={"error_code": "MAX_ATTEMPTS", "error_category": "PERMANENT", "finished_at": NOW},
    ),
    "recover with budget left makes the job ready at once": Row(
        "recover",
        "clock",
        "running",
        given={**LOST, "run_at": PAST},
        path="recover: running → ready",
        then={**NO_CLAIM, "run_at": NOW},
        kept=("attempt_count", "attempt_base"),
    ),
    "recover with the budget spent fails the job": Row(
        "recover",
        "clock",
        "running",
        given={**LOST, **SPENT},
        path="recover: running → failed",
        then={**NO_CLAIM, "error_code": "MAX_ATTEMPTS", "finished_at": NOW},
    ),
    "requeue gives a failed job a full budget": Row(
        "requeue",
        "operator",
        "failed",
        given={**TIRED, "finished_at": PAST},
        path="requeue: failed → ready",
        then={"attempt_base": 6, "return_count": 0, "run_at": NOW, "finished_at": None},
    ),
    "cancel ends a job before it runs": Row(
        "cancel",
        "producer",
        "ready",
        path="cancel: ready → failed",
        then={"error_code": "CANCELLED"},
    ),
    "cancel never touches a running job": Row(
        "cancel", "operator", "running", given=CLAIMED, refused="state"
    ),
}


@rows({f"task {name}": row for name, row in PLAIN_ROWS.items()})
def test_the_plain_lifecycle(row):
    hold(TASK, row)


def test_a_plain_retry_waits_longer_each_time():
    waits = []
    for attempt in (1, 2, 3, 4):
        job = new_job(TASK, state="running", **{**CLAIMED, "attempt_count": attempt})
        fitting = [
            move
            for move in TASK.actions["retry"]
            if failing_guard(move, job, TASK, context(), job.claim_seq) is None
        ]
        assert [move.to for move in fitting] == ["ready"]
        waits.append(apply_move(TASK, fitting[0], job, Change(job.id), context()).run_at - NOW)
    assert [round(wait / SECOND) for wait in waits] == [15, 30, 60, 120]


def test_a_lifecycle_under_another_name_keeps_the_same_moves():
    renamed = task_lifecycle("mail")
    assert isinstance(renamed, Lifecycle)
    assert (renamed.name, renamed.moves) == ("mail", TASK.moves)
