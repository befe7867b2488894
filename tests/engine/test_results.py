from collections.abc import Callable
from typing import Any

import pytest

from kesin import Act, Done, Failed, Job, Queue, Sweeper, Wait, Worker
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.errors import Category
from kesin.store.records import Filter
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from tests.engine.conftest import job_of, moves, only, states

SECOND = 1_000_000


def returned(queue: Queue, result: Any, **options: Any) -> Job:
    """The job after a worker ran a handler that returns this."""
    queue.enqueue({"n": 1})
    Worker(queue, lambda _job: result, name="w", **options).drain()
    return only(queue)


def raised(queue: Queue, problem: BaseException) -> Job:
    def handler(_job: Job) -> None:
        raise problem

    queue.enqueue({"n": 1})
    Worker(queue, handler, name="w").drain()
    return only(queue)


def error(job: Job) -> tuple[str | None, str | None, str | None]:
    return job.error_code, job.error_category, job.error_message


# Done


def test_done_keeps_its_result_as_canonical_json_and_nothing_means_done(queue: Queue):
    job = returned(queue, None)
    assert (job.state, job.result_json, job.worker) == ("done", None, None)
    done = queue.enqueue({}).id
    Worker(queue, lambda _job: Done({"b": 1, "a": ["ü", None]})).drain()
    job = job_of(queue, done)
    assert (job.state, job.result_json) == ("done", '{"a":["ü",null],"b":1}')
    assert job.result == {"a": ["ü", None], "b": 1}


# Failed


@pytest.mark.parametrize("how", [returned, raised])
def test_failed_may_be_returned_or_raised(queue: Queue, how: Callable[..., Job]):
    job = how(queue, Failed("NO_PAPER", "the tray is empty", category=Category.PERMANENT))
    assert job.state == "failed"
    assert error(job) == ("NO_PAPER", "PERMANENT", "the tray is empty")


def test_an_exception_is_retried_with_its_class_name_as_code(queue: Queue, clock: ManualClock):
    job = raised(queue, ConnectionResetError("peer went away"))
    assert job.state == "ready"
    assert error(job) == ("ConnectionResetError", "TRANSIENT", "peer went away")
    assert job.run_at == clock.time_us + 10 * SECOND
    assert moves(queue, job.id) == ["enqueue", "claim", "retry"]


def test_a_declared_code_has_the_category_that_was_declared(queue: Queue):
    job = returned(queue, Failed("CANCELLED", category=Category.TRANSIENT))
    assert (job.state, job.error_category) == ("failed", "PERMANENT")


def test_a_failure_without_a_message_has_its_code_as_message(queue: Queue):
    assert returned(queue, Failed("NO_PAPER")).error_message == "NO_PAPER"
    assert str(Failed("NO_PAPER", "empty")) == "NO_PAPER: empty"
    assert str(Failed("NO_PAPER")) == "NO_PAPER"


def test_code_and_message_of_a_failure_are_cut_to_their_limits(queue: Queue):
    job = returned(queue, Failed("C" * 500, "m\x00" * 5_000 + "\ud800"))
    assert job.error_code == "C" * 64
    assert job.error_message == "m" * 1_000


@pytest.mark.parametrize(("channel", "state"), [("script", "FAILED"), ("api", "RETRY"), ("data_manager", "RETRY")])
def test_the_channel_decides_where_codes_differ_by_channel(
    store: SqliteStore, clock: ManualClock, channel: str, state: str
):
    queue = Queue("oci", oci_lifecycle(), store, clock=clock)
    assert returned(queue, Failed("UPLOAD_EXCEPTION"), channel=channel).state == state


def test_a_code_may_name_its_own_move(store: SqliteStore, clock: ManualClock):
    queue = Queue("oci", oci_lifecycle(), store, clock=clock)
    job = returned(queue, Failed("ORDER_ID_ALREADY_IN_USE", "known"), channel="api")
    assert (job.state, job.error_code) == ("COMPLETED", "ORDER_ID_ALREADY_IN_USE")
    assert moves(queue, job.id)[-1] == "ack_duplicate"


# Wait and Act


@pytest.fixture
def orders(store: SqliteStore, clock: ManualClock) -> Queue:
    return Queue("orders", optiplan_lifecycle(), store, clock=clock)


def test_wait_drops_the_claim_and_sets_a_wake_up_time(orders: Queue, clock: ManualClock):
    def handler(job: Job, run: Any) -> Wait:
        run.move("prepare")
        run.move("import")
        return Wait(30)

    orders.enqueue({})
    Worker(orders, handler, name="w").drain()
    job = only(orders)
    assert (job.state, job.worker) == ("OPTI_IMPORTED", None)
    assert job.run_at == clock.time_us + 30 * SECOND
    assert moves(orders, job.id) == ["enqueue", "claim", "prepare", "import", "wait"]
    assert Worker(orders, lambda _job: None, name="w").drain() == 0
    clock.advance(30)
    Worker(orders, lambda _job: Act("wait", run_in_s=90), name="w").drain()
    assert only(orders).run_at == clock.time_us + 90 * SECOND


def test_act_makes_the_named_move_with_its_details(orders: Queue):
    hold = Act(
        "hold", code="E_CRM_NO_MATCH", message="which customer?", category=Category.VALIDATION, note={"seen": "Müller"}
    )
    job = returned(orders, hold)
    assert job.state == "HOLD"
    assert error(job) == ("E_CRM_NO_MATCH", "VALIDATION", "which customer?")
    assert job.note == '{"seen":"Müller"}'


@pytest.mark.parametrize(("fenced", "state"), [(True, "RETRY"), (False, "COMPLETED")])
def test_an_unfenced_result_counts_after_the_claim_was_lost(
    store: SqliteStore, clock: ManualClock, fenced: bool, state: str
):
    queue = Queue("oci", oci_lifecycle(), store, clock=clock)

    def late(_job: Job) -> Act:
        clock.advance(3_600)
        Sweeper([queue]).sweep(["recover"])
        return Act("ack", fenced=fenced)

    queue.enqueue({})
    Worker(queue, late).run_once()
    assert only(queue).state == state


# Bad results

BAD = {
    "not a number": Done(float("nan")),
    "a note that is no JSON": Act("complete", note={"x": object()}),
    "a class": Failed,
    "JSON with something else in it": {"at": object()},
    "a wait by an action that is not declared": Wait(5, "pause"),
    "an action of operators": Act("requeue"),
    "an undeclared option": Act("complete", options=frozenset({"loudly"})),
}


def test_a_bad_result_fails_its_job_permanently_and_no_other(queue: Queue):
    for n in range(5 + len(BAD)):
        queue.enqueue({"n": n})
    results: list[Any] = [*BAD.values(), *[None] * 5]
    assert Worker(queue, batch_handler=lambda _: results, batch=len(results)).run_once()
    assert states(queue) == {"done": 5, "failed": len(BAD)}
    for job in queue.jobs(Filter(states=("failed",))).jobs:
        assert (job.error_code, job.error_category) == ("BAD_ANSWER", "PERMANENT")
        assert job.error_message
