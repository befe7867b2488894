"""The plain lifecycle keeps its promises, and the moves that lifecycles share can be adapted."""

import pytest

from kesin.lifecycle.moves import complete, expire, prune
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import DeclarationError, age_over, holds_claim, unclaimed
from tests.lifecycle.adversary import NOW
from tests.lifecycle.table import (
    CLAIMED,
    LOST,
    NO_CLAIM,
    NO_ERROR,
    PAST,
    SECOND,
    Row,
    Within,
    error,
    hold,
    refused,
    rows,
)

TASK = task_lifecycle()
SPENT = {"attempt_count": 5}
TIRED = {"attempt_count": 6, "attempt_base": 2, "return_count": 1}
ERROR_INPUT = {"error_code": "NEW", "error_category": "TRANSIENT", "error_message": "after"}


def retry(to: str, then: dict, attempt: int) -> Row:
    """A worker reports an error in this attempt."""
    return Row(
        "retry",
        "worker",
        "running",
        given={**CLAIMED, "attempt_count": attempt},
        change=ERROR_INPUT,
        path=f"retry: running → {to}",
        then={**NO_CLAIM, **error("NEW", "TRANSIENT", "after"), **then},
    )


PROMISES = {
    **{
        f"attempt {attempt} is followed by a pause of {seconds} s": retry(
            "ready", {"run_at": Within(NOW + seconds * SECOND, NOW + (seconds + 15) * SECOND)}, attempt
        )
        for attempt, seconds in ((1, 15), (2, 30), (3, 60), (4, 120))
    },
    "a retry that is spent fails with its own message": retry("failed", {"finished_at": NOW}, 5),
    "a spent job is not claimed": refused("claim", "worker", "ready", "budget_left", **SPENT),
    "a success clears the error of an earlier attempt": Row(
        "complete",
        "worker",
        "running",
        given={**CLAIMED, **error("OLD", "AUTH", "before")},
        change={"result": "[1]"},
        path="complete: running → done",
        then={**NO_CLAIM, **NO_ERROR, "result_json": "[1]", "finished_at": NOW},
    ),
    "a stop returns the attempt": Row(
        "release",
        "worker",
        "running",
        given=CLAIMED,
        path="release: running → ready",
        then={**NO_CLAIM, "attempt_base": 1, "return_count": 1, "run_at": NOW},
    ),
    "no more than two attempts are returned": refused(
        "release", "worker", "running", "returns_left", **CLAIMED, return_count=2
    ),
    "a job whose worker died is due at once": Row(
        "recover",
        "clock",
        "running",
        given={**LOST, "run_at": PAST},
        path="recover: running → ready",
        then={**NO_CLAIM, "run_at": NOW},
        kept=("attempt_count", "attempt_base"),
    ),
    "a job whose worker died in the last attempt fails": Row(
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
    "a failure is dismissed and stays where it is": Row(
        "dismiss",
        "operator",
        "failed",
        given={**TIRED, **error("OLD", "VALIDATION", "before"), "finished_at": PAST},
        path="dismiss: failed → failed",
        then={"error_code": "DISMISSED", "error_category": "PERMANENT"},
        kept=("finished_at", "attempt_count"),
    ),
    "a dismissed failure is not dismissed again": refused(
        "dismiss", "operator", "failed", "code_not_in", **error("DISMISSED", "PERMANENT", "")
    ),
    "a running job is cancelled, and its worker loses it": Row(
        "cancel",
        "operator",
        "running",
        given=CLAIMED,
        path="cancel_running: running → failed",
        then={**NO_CLAIM, "error_code": "CANCELLED", "finished_at": NOW},
    ),
    "a handler says when to try again": Row(
        "retry",
        "worker",
        "running",
        given=CLAIMED,
        change={**ERROR_INPUT, "run_at": NOW + 7 * SECOND},
        options=frozenset({"later"}),
        path="retry_later: running → ready",
        then={**NO_CLAIM, "error_code": "NEW", "run_at": NOW + 7 * SECOND},
    ),
    "a wait uses an attempt and clears the error": Row(
        "wait",
        "worker",
        "running",
        given={**CLAIMED, **error("OLD", "AUTH", "before")},
        change={"run_at": NOW + 7 * SECOND},
        path="wait: running → ready",
        then={**NO_CLAIM, **NO_ERROR, "run_at": NOW + 7 * SECOND},
        kept=("attempt_count", "attempt_base"),
    ),
    "a wait in the last attempt ends the job": Row(
        "wait",
        "worker",
        "running",
        given={**CLAIMED, **SPENT},
        path="wait_spent: running → failed",
        then={**NO_CLAIM, "error_code": "MAX_ATTEMPTS", "finished_at": NOW},
    ),
}


@rows(PROMISES)
def test_the_promises_of_a_plain_job(row):
    hold(TASK, row)


# The shared moves


def test_a_keyword_replaces_what_the_kind_would_set():
    late = complete("running", "done", name="late", action="finish", when=(), error="record")
    assert (late.name, late.action, late.when, late.error) == ("late", "finish", (), "record")
    assert (late.claim, late.result, late.by) == ("drop", "record", ("worker",))
    assert complete("running", "done").when == (holds_claim,)


def test_a_finished_job_expires_by_its_finish_and_is_not_stamped_again():
    waiting, finished = (expire("ready", "gone", 60), expire("done", "gone", 60, since="finished_at"))
    assert (waiting.when, waiting.stamp) == ((unclaimed, age_over("created_at", 60)), ("finished_at",))
    assert (finished.when, finished.stamp) == ((age_over("finished_at", 60),), ())
    assert prune("done", days=2).when == (age_over("finished_at", 172_800),)


WRONG = [
    ({"concurrency": "3"}, "slots must be in"),
    ({"concurrency": True}, "slots must be in"),
    ({"concurrency": 0}, "slots must be in 1…10000, got 0"),
    ({"concurrency": 0, "per": "tenant"}, "slots must be in 1…10000, got 0"),
    ({"rate": 5}, "rate must be a number of jobs and a number of seconds, got 5"),
    ({"rate": (1,)}, "rate must be a number of jobs and a number of seconds"),
    ({"rate": ("100", 60)}, "a rate must be 1…10000 claims"),
    ({"rate": (100.0, 60)}, "a rate must be 1…10000 claims"),
    ({"parents": "yes"}, "parents must be True or False, got 'yes'"),
]


@pytest.mark.parametrize(("wrong", "why"), WRONG, ids=str)
def test_a_limit_that_cannot_be_meant_is_refused_by_name(wrong, why):
    with pytest.raises(DeclarationError, match=why):
        task_lifecycle(**wrong)
