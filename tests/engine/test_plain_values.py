"""Plain Python values: names of categories, datetimes, timedeltas, JSON results."""

import re
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import kesin
from kesin import (
    Act,
    BadInput,
    Category,
    Code,
    Done,
    Failed,
    Filter,
    Fixed,
    Job,
    ManualClock,
    NewJob,
    Queue,
    Wait,
    Worker,
    open_store,
    task_lifecycle,
)
from kesin.lifecycle.model import Change
from tests.engine.conftest import only

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_US = 1_772_366_400_000_000
ISTANBUL = timezone(timedelta(hours=3))


@pytest.fixture
def queue():
    with closing(open_store(":memory:")) as store:
        yield Queue("task", task_lifecycle(), store, clock=ManualClock(NOON))


BAD_TIMES: dict[Any, str] = {
    1_772_366_400: "which would be in 1970",
    1_772_366_400_000: "which would be in 1970",
    1_772_366_400.5: "must be a datetime or microseconds",
    datetime(2026, 3, 1, 12): "must have a time zone",  # noqa: DTZ001
    "tomorrow": "must be a datetime or microseconds",
    True: "must be a datetime or microseconds",
    2**63: "which would be in",
}


def test_a_time_is_a_datetime_or_microseconds_and_others_are_refused_with_the_fix(queue: Queue):
    for bad, why in BAD_TIMES.items():
        with pytest.raises(BadInput, match=why):
            queue.enqueue(1, run_at=bad)
        [refused] = queue.enqueue_many([NewJob(1, run_at=bad)])
        assert isinstance(refused, BadInput)
    assert queue.jobs().jobs == []
    times: tuple[Any, ...] = (NOON_US, NOON, NOON.astimezone(ISTANBUL), datetime(2026, 3, 1, 15, tzinfo=ISTANBUL))
    for run_at in times:
        queue.enqueue(1, run_at=run_at)
    assert [job.run_at for job in queue.jobs().jobs] == [NOON_US] * len(times)


def test_a_duration_is_a_timedelta_or_seconds(queue: Queue):
    queue.enqueue(1, delay_s=timedelta(minutes=1))
    assert only(queue).run_at == NOON_US + 60_000_000
    assert isinstance(queue.clock, ManualClock)
    queue.clock.advance(timedelta(hours=1))
    [job] = queue.claim("w", lease_seconds=timedelta(minutes=2))
    assert job.lease_until == job.moved_at + 120_000_000
    assert Wait(timedelta(minutes=1)) == Wait(60)
    assert Act("x", run_in_s=timedelta(seconds=5)) == Act("x", run_in_s=5)
    bad: tuple[Any, ...] = (0, -1, "60", timedelta(0))
    for lease in bad:
        with pytest.raises(BadInput, match="lease_seconds must"):
            queue.claim("w", lease_seconds=lease)
        with pytest.raises(BadInput, match="lease_seconds must"):
            Worker(queue, lambda _: None, lease_seconds=lease)


def test_a_filter_takes_datetimes(queue: Queue):
    queue.enqueue(1)
    assert Filter(created_from=NOON) == Filter(created_from=NOON_US)
    assert len(queue.jobs(Filter(created_from=NOON)).jobs) == 1
    assert queue.jobs(Filter(created_before=NOON)).jobs == []
    with pytest.raises(ValueError, match="must have a time zone"):
        Filter(created_from=datetime(2026, 3, 1))  # noqa: DTZ001


def test_a_category_may_be_given_by_its_name(queue: Queue):
    assert Failed("X", category="TRANSIENT").category is Category.TRANSIENT
    assert Act("fail", category="AUTH").category is Category.AUTH
    queue.enqueue(1)
    Worker(queue, lambda _: Failed("X", category="VALIDATION")).drain()
    assert only(queue).error_category == "VALIDATION"
    assert Code("X", "AUTH") == Code("X", Category.AUTH)  # type: ignore[arg-type]
    assert Fixed("X", "AUTH", "x").category is Category.AUTH  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a category must be one of"):
        Code("X", "auth")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="a category must be one of"):
        queue.act("cancel", ids=[only(queue).id], actor="op", code="X", category="never")


def bad_category(_job: Job) -> Any:
    return Failed("X", category="transient")


def bad_wait(_job: Job) -> Any:
    return Wait("60")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (bad_category, "one of VALIDATION, AUTH, TRANSIENT, RATE_LIMIT, PERMANENT; got 'trans"),
        (bad_wait, "seconds must be a timedelta or a number of seconds, got '60'"),
        (lambda _: False, r"return Done\(False\) if that is the job's result"),
        (lambda _: (1, 2), "not tuple: "),
    ],
)
def test_a_result_that_cannot_be_meant_fails_the_job_and_says_what_to_write(queue: Queue, handler: Any, why: str):
    queue.enqueue(1)
    Worker(queue, handler).drain()
    job = only(queue)
    assert (job.state, job.error_code) == ("failed", "BAD_ANSWER")
    assert re.search(why, job.error_message or "")


def test_a_json_value_is_the_result_of_its_job(queue: Queue):
    values: list[Any] = [{"sent": 3}, [1, 2], "sent", 3, 2.5]
    for n in range(len(values)):
        queue.enqueue({"n": n})
    Worker(queue, lambda job: values[job.payload["n"]]).drain()
    assert [job.result for job in reversed(queue.jobs().jobs)] == values
    assert queue.stats().states["done"] == len(values)


def test_old_names_work_for_one_more_release_and_warn(queue: Queue):
    with pytest.warns(DeprecationWarning, match=r"kesin\.New is now kesin\.NewJob"):
        assert kesin.New is NewJob  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"kesin\.Run is now kesin\.RunContext"):
        assert kesin.Run is kesin.RunContext  # type: ignore[attr-defined]
    queue.enqueue({"n": 1})
    seen: list[str] = []
    with pytest.warns(DeprecationWarning, match="in_transaction"):
        worker = Worker(queue, lambda _: Done(2), beside=lambda action, *_: seen.append(action))
    worker.drain()
    assert seen == ["complete"]
    with pytest.warns(DeprecationWarning, match=r"queue\.apply is now queue\.act or queue\.move"):
        assert [outcome.reason for outcome in queue.apply("fail", [Change(only(queue).id)], actor="w")]
    with pytest.warns(DeprecationWarning, match=r"job\.data is now job\.payload"):
        assert only(queue).data == {"n": 1}
    with pytest.warns(DeprecationWarning, match=r"job\.outcome is now job\.result"):
        assert only(queue).outcome == 2
