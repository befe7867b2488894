"""The promises of the pdf lifecycle: retries, lost workers, and how long a PDF is kept."""

from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.lifecycle.adversary import NOW
from tests.lifecycle.table import CLAIMED, DAY, LOST, NO_CLAIM, NO_ERROR, PAST, SECOND, Row, error, hold, refused, rows

PDF = pdf_lifecycle()
RETRIED = "{0}: running → failed + requeue: failed → queued"
RESUMED = "release: running → failed + resume: failed → queued"
SECOND_TRY = {"attempt_count": 2, "retry_count": 1}
THIRD_TRY = {"attempt_count": 3, "retry_count": 2}


def failed(action: str, code: str, path: str, then: dict, **given: int) -> Row:
    """A worker reports an error, or the worker is lost."""
    change = {"error_code": code, "error_category": "TRANSIENT", "error_message": "why"}
    return Row(
        action,
        "clock" if action == "lose" else "worker",
        "running",
        given={**(LOST if action == "lose" else CLAIMED), **given},
        change=change,
        path=path.format(action),
        then={**NO_CLAIM, "error_code": code, **then},
        kept=("attempt_count", "attempt_base", "return_count"),
    )


FAILURES = {
    **{
        f"{code} is not retried": failed("fail", code, "fail: running → failed", {"finished_at": NOW, "retry_count": 0})
        for code in ("TEMPLATE_ERROR", "UNSUPPORTED_PLATFORM", "UNKNOWN", "ValueError")
    },
    **{
        f"{code} is retried {text}": failed(action, code, path, then, **given)
        for action, code in (
            ("fail", "BROWSER_LAUNCH_FAILED"),
            ("fail", "NAVIGATION_TIMEOUT"),
            ("fail", "ARTIFACT_WRITE_FAILED"),
            ("lose", "WORKER_LOST"),
        )
        for text, given, path, then in (
            ("at once the first time", {}, RETRIED, {"retry_count": 1, "run_at": NOW}),
            (
                "after 5 s the second time",
                SECOND_TRY,
                RETRIED,
                {"retry_count": 2, "run_at": NOW + 5 * SECOND, "finished_at": None},
            ),
            ("no third time", THIRD_TRY, "{0}: running → failed", {"retry_count": 2, "finished_at": NOW}),
        )
    },
    "a returned attempt is no third retry": failed(
        "fail",
        "NAVIGATION_TIMEOUT",
        "fail: running → failed",
        {"retry_count": 2, "finished_at": NOW},
        attempt_base=1,
        **THIRD_TRY,
    ),
    "lose leaves a live claim alone": refused("lose", "clock", "running", "lease_over", **CLAIMED),
    "no job is claimed a fourth time": refused("claim", "worker", "queued", "budget_left", attempt_count=3),
    "a success clears the error of an earlier attempt": Row(
        "succeed",
        "worker",
        "running",
        given={**CLAIMED, **error("NAVIGATION_TIMEOUT", "TRANSIENT")},
        change={"result": '{"artifact_key":"pdfs/1/2.pdf"}'},
        path="succeed: running → succeeded",
        then={**NO_ERROR, "result_json": '{"artifact_key":"pdfs/1/2.pdf"}', "finished_at": NOW},
    ),
    "a stop returns the attempt, counts no retry and needs none": Row(
        "release",
        "worker",
        "running",
        given={**CLAIMED, **THIRD_TRY},
        path=RESUMED,
        then={**NO_CLAIM, "attempt_base": 1, "return_count": 1, "run_at": NOW, "finished_at": None},
        kept=("retry_count", "attempt_count"),
    ),
}

AGES = {
    "a queued job expires a day after it was created": Row(
        "expire", "clock", "queued", given={"created_at": NOW - DAY}, path="expire: queued → expired"
    ),
    "a queued job does not expire before": refused("expire", "clock", "queued", "age_over", created_at=NOW - DAY + 1),
    **{
        f"a {state} job expires a day after it finished": Row(
            "expire",
            "clock",
            state,
            given={"created_at": NOW - 2 * DAY, "finished_at": NOW - DAY},
            path=f"expire: {state} → expired",
        )
        for state in ("succeeded", "failed")
    },
    **{
        f"a {state} job's day counts from its finish": refused(
            "expire", "clock", state, "age_over", created_at=0, finished_at=NOW - DAY + 1
        )
        for state in ("succeeded", "failed")
    },
    "a running job does not expire": refused("expire", "clock", "running", "state", **CLAIMED, created_at=0),
    "a job whose file is missing gives its key to a new one": Row(
        "artifact_gone", "producer", "succeeded", given={"finished_at": PAST}, path="artifact_gone: succeeded → expired"
    ),
    "a dismissed failure keeps its error and its time": Row(
        "dismiss",
        "operator",
        "failed",
        given={"finished_at": PAST, **error("TEMPLATE_ERROR", "VALIDATION")},
        path="dismiss: failed → expired",
        kept=("finished_at", "error_code", "error_message"),
    ),
    **{
        f"a {state} job is not dismissed": refused("dismiss", "producer", state, "state")
        for state in ("queued", "succeeded", "expired")
    },
    "cancel never touches a running job": refused("cancel", "operator", "running", "state", **CLAIMED),
}


@rows({**FAILURES, **AGES})
def test_the_promises_of_a_pdf_job(row):
    hold(PDF, row)


def test_nobody_asks_for_a_requeue_alone():
    assert PDF.actions_of("operator") == ("cancel", "dismiss")
    assert PDF.actions_of("producer") == ("artifact_gone", "cancel", "dismiss")
    assert "requeue" not in {*PDF.actions_of("worker"), *PDF.actions_of("clock")}


def test_failed_and_expired_jobs_alone_free_their_key():
    assert [state.name for state in PDF.states if not state.holds_key] == ["failed", "expired"]


def test_a_job_has_one_attempt_more_than_retries():
    for retries, attempts in ((2, 3), (0, 1), (5, 6)):
        assert pdf_lifecycle(max_retries=retries).max_attempts == attempts
