import pytest

from kesin.workloads.pdf.lifecycle import PdfLimits, pdf_lifecycle
from tests.lifecycle.adversary import NOW
from tests.lifecycle.table import (
    CLAIMED,
    DAY,
    FUTURE,
    LOST,
    NO_CLAIM,
    NO_ERROR,
    PAST,
    SECOND,
    STALE,
    Row,
    edges_by_role,
    error,
    hold,
    rows,
    written,
)

PDF = pdf_lifecycle()
FAILED_AGAIN = "fail: running → failed + requeue: failed → queued"
LOST_AGAIN = "lose: running → failed + requeue: failed → queued"
RESUMED = "release: running → failed + resume: failed → queued"


def change(code):
    return {"error_code": code, "error_category": "TRANSIENT", "error_message": "why"}


WORKER = {
    "claim starts a due job and counts the attempt": Row(
        "claim",
        "worker",
        "queued",
        path="claim: queued → running",
        then={"started_at": NOW, "attempt_count": 1, "worker": "worker-2"},
    ),
    "claim leaves a job that is to run again later": Row(
        "claim", "worker", "queued", given={"run_at": FUTURE}, refused="due"
    ),
    "claim takes a third attempt": Row(
        "claim",
        "worker",
        "queued",
        given={"attempt_count": 2},
        path="claim: queued → running",
        then={"attempt_count": 3},
    ),
    "claim never takes a fourth attempt": Row(
        "claim", "worker", "queued", given={"attempt_count": 3}, refused="budget_left"
    ),
    "succeed keeps the artifact and stamps finished_at": Row(
        "succeed",
        "worker",
        "running",
        given={**CLAIMED, **error("NAVIGATION_TIMEOUT", "TRANSIENT")},
        change={"result": '{"artifact_key":"pdfs/1/2.pdf"}'},
        path="succeed: running → succeeded",
        then={
            **NO_CLAIM,
            **NO_ERROR,
            "result": '{"artifact_key":"pdfs/1/2.pdf"}',
            "finished_at": NOW,
        },
    ),
    "succeed from a worker that lost its claim is refused": Row(
        "succeed",
        "worker",
        "running",
        given=CLAIMED,
        change={"token": STALE},
        refused="holds_claim",
    ),
    **{
        f"fail with {code} stays failed and stamps finished_at": Row(
            "fail",
            "worker",
            "running",
            given=CLAIMED,
            change=change(code),
            path="fail: running → failed",
            then={**NO_CLAIM, "error_code": code, "finished_at": NOW, "retry_count": 0},
        )
        for code in ("TEMPLATE_ERROR", "UNSUPPORTED_PLATFORM", "UNKNOWN", "ValueError")
    },
    **{
        f"fail with {code} is queued again at once the first time": Row(
            "fail",
            "worker",
            "running",
            given=CLAIMED,
            change=change(code),
            path=FAILED_AGAIN,
            then={**NO_CLAIM, "retry_count": 1, "run_at": NOW, "finished_at": None},
            kept=("attempt_count", "attempt_base", "return_count"),
        )
        for code in ("BROWSER_LAUNCH_FAILED", "NAVIGATION_TIMEOUT")
    },
    **{
        f"fail with {code} is queued again after 5 s the second time": Row(
            "fail",
            "worker",
            "running",
            given={**CLAIMED, "attempt_count": 2, "retry_count": 1},
            change=change(code),
            path=FAILED_AGAIN,
            then={"retry_count": 2, "run_at": NOW + 5 * SECOND},
        )
        for code in ("BROWSER_LAUNCH_FAILED", "NAVIGATION_TIMEOUT")
    },
    **{
        f"fail with {code} stays failed the third time": Row(
            "fail",
            "worker",
            "running",
            given={**CLAIMED, "attempt_count": 3, "retry_count": 2},
            change=change(code),
            path="fail: running → failed",
            then={"retry_count": 2, "finished_at": NOW, "error_code": code},
        )
        for code in ("BROWSER_LAUNCH_FAILED", "NAVIGATION_TIMEOUT")
    },
    "fail stays failed after two retries though a returned attempt is left": Row(
        "fail",
        "worker",
        "running",
        given={**CLAIMED, "attempt_count": 3, "attempt_base": 1, "retry_count": 2},
        change=change("NAVIGATION_TIMEOUT"),
        path="fail: running → failed",
        then={"retry_count": 2, "finished_at": NOW},
    ),
    "fail from a worker that lost its claim is refused": Row(
        "fail", "worker", "running", given=CLAIMED, change={"token": STALE}, refused="holds_claim"
    ),
    "release is INTERRUPTED, queued again and returns the attempt": Row(
        "release",
        "worker",
        "running",
        given=CLAIMED,
        path=RESUMED,
        then={**NO_CLAIM, "attempt_count": 1, "attempt_base": 1, "return_count": 1, "run_at": NOW},
    ),
    "release does not raise retry_count": Row(
        "release",
        "worker",
        "running",
        given={**CLAIMED, "retry_count": 1},
        path=RESUMED,
        kept=("retry_count",),
    ),
    "release resumes a job whose retries are used up": Row(
        "release",
        "worker",
        "running",
        given={**CLAIMED, "attempt_count": 3, "retry_count": 2},
        path=RESUMED,
        then={"finished_at": None, "run_at": NOW},
    ),
    "release is refused once two attempts were returned": Row(
        "release",
        "worker",
        "running",
        given={**CLAIMED, "return_count": 2},
        refused="returns_left",
    ),
    "release from a worker that lost its claim is refused": Row(
        "release",
        "worker",
        "running",
        given=CLAIMED,
        change={"token": STALE},
        refused="holds_claim",
    ),
    "requeue cannot be asked for alone": Row(
        "requeue",
        "worker",
        "failed",
        given=error("NAVIGATION_TIMEOUT", "TRANSIENT"),
        refused="role",
    ),
}

CLOCK = {
    "lose is WORKER_LOST and queued again at once": Row(
        "lose",
        "clock",
        "running",
        given=LOST,
        path=LOST_AGAIN,
        then={**NO_CLAIM, "error_code": "WORKER_LOST", "retry_count": 1, "run_at": NOW},
    ),
    "lose is queued again after 5 s the second time": Row(
        "lose",
        "clock",
        "running",
        given={**LOST, "attempt_count": 2, "retry_count": 1},
        path=LOST_AGAIN,
        then={"retry_count": 2, "run_at": NOW + 5 * SECOND},
    ),
    "lose stays failed the third time": Row(
        "lose",
        "clock",
        "running",
        given={**LOST, "attempt_count": 3, "retry_count": 2},
        path="lose: running → failed",
        then={**NO_CLAIM, "error_code": "WORKER_LOST", "finished_at": NOW},
    ),
    "lose leaves a live claim alone": Row(
        "lose", "clock", "running", given=CLAIMED, refused="lease_over"
    ),
    "expire ends a queued job a day after it was created": Row(
        "expire",
        "clock",
        "queued",
        given={"created_at": NOW - DAY},
        path="expire: queued → expired",
    ),
    "expire leaves a queued job until then": Row(
        "expire", "clock", "queued", given={"created_at": NOW - DAY + 1}, refused="age_over"
    ),
    **{
        f"expire ends a {state} job a day after it finished": Row(
            "expire",
            "clock",
            state,
            given={"created_at": NOW - 2 * DAY, "finished_at": NOW - DAY},
            path=f"expire: {state} → expired",
        )
        for state in ("succeeded", "failed")
    },
    **{
        f"expire counts a {state} job's day from its finish": Row(
            "expire",
            "clock",
            state,
            given={"created_at": NOW - 2 * DAY, "finished_at": NOW - DAY + 1},
            refused="age_over",
        )
        for state in ("succeeded", "failed")
    },
    "expire never touches a running job": Row(
        "expire", "clock", "running", given={**CLAIMED, "created_at": 0}, refused="state"
    ),
}

PEOPLE = {
    "artifact_gone expires a job whose file is missing": Row(
        "artifact_gone",
        "producer",
        "succeeded",
        given={"finished_at": PAST},
        path="artifact_gone: succeeded → expired",
    ),
    "artifact_gone is the producer's move alone": Row(
        "artifact_gone", "operator", "succeeded", refused="role"
    ),
    "artifact_gone touches nothing but a succeeded job": Row(
        "artifact_gone", "producer", "running", given=CLAIMED, refused="state"
    ),
    **{
        f"cancel by the {role} expires a queued job": Row(
            "cancel", role, "queued", path="cancel: queued → expired"
        )
        for role in ("operator", "producer")
    },
    "cancel never touches a running job": Row(
        "cancel", "operator", "running", given=CLAIMED, refused="state"
    ),
}


@rows({f"pdf {name}": row for name, row in WORKER.items()})
def test_workers(row):
    hold(PDF, row)


@rows({f"pdf {name}": row for name, row in CLOCK.items()})
def test_the_clock(row):
    hold(PDF, row)


@rows({f"pdf {name}": row for name, row in PEOPLE.items()})
def test_people(row):
    hold(PDF, row)


def test_pdf_has_no_other_edge_than_those_of_its_page():
    assert edges_by_role(PDF) == written(
        "claim | queued → running | worker",
        "succeed | running → succeeded | worker",
        "fail | running → failed | worker",
        "requeue | failed → queued | worker, clock",
        "lose | running → failed | clock",
        "release | running → failed | worker",
        "resume | failed → queued | worker",  # the second move of a release
        "expire | queued, succeeded, failed → expired | clock",
        "artifact_gone | succeeded → expired | producer",
        "cancel | queued → expired | operator, producer",
    )


def test_pdf_has_exactly_the_states_of_its_page():
    marks = {s.name: (s.initial, s.terminal, s.resting, s.success) for s in PDF.states}
    assert marks == {
        "queued": (True, False, False, False),
        "running": (False, False, False, False),
        "succeeded": (False, False, True, True),
        "failed": (False, False, True, False),
        "expired": (False, True, False, False),
    }


def test_pdf_frees_the_dedup_key_of_failed_and_expired_jobs_alone():
    assert [state.name for state in PDF.states if not state.holds_key] == ["failed", "expired"]


@pytest.mark.parametrize(("retries", "attempts"), [(2, 3), (0, 1), (5, 6)])
def test_pdf_tries_once_more_than_it_retries(retries, attempts):
    assert pdf_lifecycle(PdfLimits(max_retries=retries)).max_attempts == attempts


def test_pdf_requeues_in_a_chain_only():
    assert {move.name for move in PDF.moves if move.chained} == {"requeue", "resume"}
