"""Schedules: one job a tick, whatever clocks, sweepers and daylight saving do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin import BadInput, ManualClock, Queue, Schedule, Store, Sweeper, task_lifecycle
from kesin.engine import schedules
from kesin.engine.schedules import run_now, tick
from kesin.store.records import ScheduleRow
from tests.store.conftest import STORES, opened
from tests.tables import table

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
NIGHTLY = Schedule("nightly", "0 3 * * *", {"kind": "report"}, "Europe/Istanbul")
Open = Callable[..., Queue]


every_store = pytest.mark.parametrize("store", STORES, indirect=True)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with opened(getattr(request, "param", "sqlite-memory"), request) as store:
        yield store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGIN)


@pytest.fixture
def reports(store: Store, clock: ManualClock) -> Open:
    """Opens the queue as another process would."""
    return lambda *schedules: Queue("reports", task_lifecycle(), store, clock=clock, schedules=schedules or None)


def keys(queue: Queue) -> list[str]:
    return sorted(job.dedup_key or "" for job in queue.jobs().jobs)


def next_tick(queue: Queue) -> str:
    [row] = queue.store.schedules(queue.name)
    return datetime.fromtimestamp(row.next_at / 1e6, UTC).isoformat()


@every_store
def test_each_tick_is_one_job_under_its_own_key(reports, clock):
    queue = reports(NIGHTLY)
    assert next_tick(queue) == "2026-03-02T00:00:00+00:00"  # 3 o'clock in Istanbul
    assert tick(queue) == 0
    for _ in range(3):
        clock.advance(timedelta(days=1))
        assert (tick(queue), tick(queue)) == (1, 0)
    assert keys(queue) == [f"nightly@2026-03-0{day}T00:00:00Z" for day in (2, 3, 4)]
    [first, *_] = reversed(queue.jobs().jobs)
    assert (first.payload, first.actor, first.once) == ({"kind": "report"}, "schedule:nightly", 1)


def test_of_missed_ticks_the_latest_are_made_up_for(reports, clock):
    queue = reports(NIGHTLY, Schedule("three", "0 * * * *", {}, catch_up=3))
    clock.advance(timedelta(days=10))
    assert tick(queue) == 4
    hours = [f"three@2026-03-11T{hour}:00:00Z" for hour in (10, 11, 12)]
    assert keys(queue) == ["nightly@2026-03-11T00:00:00Z", *hours]


@every_store
def test_a_clock_that_was_set_back_finds_its_jobs_there(reports, clock):
    queue = reports(NIGHTLY)
    clock.advance(timedelta(days=1))
    assert tick(queue) == 1
    clock.advance(timedelta(hours=-30))
    assert tick(queue) == 0
    assert next_tick(queue) == "2026-03-02T00:00:00+00:00"
    clock.advance(timedelta(hours=30))
    assert tick(queue) == 0  # it is the same tick, and its job is there
    clock.advance(timedelta(days=1))
    assert tick(queue) == 1
    assert len(keys(queue)) == 2


def test_a_clock_that_ran_ahead_skips_nothing_after_it_was_mended(reports, clock):
    queue = reports(NIGHTLY)
    clock.advance(timedelta(days=300))
    assert tick(queue) == 1
    clock.advance(timedelta(days=-300))
    clock.advance(timedelta(days=1))
    tick(queue)
    assert "nightly@2026-03-02T00:00:00Z" not in keys(queue)  # it was found out after that tick
    clock.advance(timedelta(days=1))
    assert tick(queue) == 1
    assert "nightly@2026-03-03T00:00:00Z" in keys(queue)


def test_a_tick_whose_job_is_done_is_not_repeated(reports, clock):
    queue = reports(NIGHTLY)
    clock.advance(timedelta(days=1))
    tick(queue)
    [job] = queue.claim("w")
    queue.move(job, "complete")
    [row] = queue.store.schedules("reports")
    queue.store.write_schedules("reports", [row._replace(next_at=row.next_at - 86_400_000_000)])
    assert tick(queue) == 0
    assert queue.stats().states == {"ready": 0, "running": 0, "done": 1, "failed": 0}


@every_store
def test_several_sweepers_make_one_job(reports, clock):
    processes = [reports(NIGHTLY) for _ in range(4)]
    clock.advance(timedelta(days=1))
    threads = [threading.Thread(target=tick, args=(queue,)) for queue in processes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys(processes[0])) == 1


@every_store
def test_schedules_are_changed_and_removed_by_who_declares_them(reports, clock):
    queue = reports(NIGHTLY, Schedule("hourly", "0 * * * *", {}))
    reports()  # declares none, and removes none
    assert [row.name for row in queue.store.schedules("reports")] == ["hourly", "nightly"]
    later = Schedule("nightly", "30 3 * * *", {"kind": "report"}, "Europe/Istanbul")
    queue = reports(later)
    assert next_tick(queue) == "2026-03-02T00:30:00+00:00"
    clock.advance(timedelta(days=1))
    tick(queue)
    assert keys(queue) == ["nightly@2026-03-02T00:30:00Z"]


def test_the_sweeper_ticks_and_a_job_can_be_made_at_once(reports, clock):
    queue = reports(NIGHTLY)
    clock.advance(timedelta(days=1))
    Sweeper([queue]).sweep()
    assert len(keys(queue)) == 1
    plain = reports()
    clock.advance(timedelta(days=1))
    Sweeper([plain]).sweep()
    assert len(keys(queue)) == 1  # a process that declares none leaves it to those that do
    assert run_now(queue, "nightly", actor="ada").result == "inserted"
    made = queue.jobs().jobs[0]
    assert (made.payload, made.actor, made.dedup_key) == ({"kind": "report"}, "ada", None)
    with pytest.raises(BadInput, match="no schedule 'weekly'"):
        run_now(queue, "weekly", actor="ada")


@table(
    ("change", "why"),
    [
        ({"cron": "0 0 30 2 *"}, "'0 0 30 2 \\*' is not a valid cron expression, or never matches"),
        ({"cron": "every day"}, "not a valid cron expression"),
        ({"cron": 5}, "not a valid cron expression"),
        ({"timezone": "Europe/Ankara"}, "there is no time zone 'Europe/Ankara'"),
        ({"timezone": "../etc/passwd"}, "there is no time zone"),
        ({"catch_up": 0}, "catch_up must be a whole number"),
        ({"catch_up": 1_001}, "catch_up must be a whole number"),
        ({"catch_up": 1.0}, "catch_up must be a whole number"),
        ({"catch_up": True}, "catch_up must be a whole number"),
        ({"name": ""}, "name must have"),
        ({"tenant": "t" * 129}, "tenant must have"),
        ({"payload": object()}, "the payload is"),
    ],
)
def test_what_cannot_be_meant_is_refused(change, why):
    with pytest.raises(BadInput, match=why):
        Schedule(**{"name": "n", "cron": "0 3 * * *", "payload": {}, **change})


def test_a_schedule_whose_jobs_the_queue_would_refuse_is_refused_at_once(store, clock):
    small = Schedule("big", "0 * * * *", {"text": "x" * 300_000})
    with pytest.raises(BadInput, match="the payload is"):
        Queue("reports", task_lifecycle(), store, clock=clock, schedules=[small])
    with pytest.raises(BadInput, match="a list of schedules"):
        Queue("reports", task_lifecycle(), store, clock=clock, schedules=NIGHTLY)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="is not a Schedule"):
        Queue("reports", task_lifecycle(), store, clock=clock, schedules=["0 3 * * *"])  # type: ignore[list-item]
    with pytest.raises(BadInput, match="the same name"):
        Queue("reports", task_lifecycle(), store, clock=clock, schedules=[NIGHTLY, NIGHTLY])


def test_a_schedule_that_fails_holds_up_no_other(reports, clock, monkeypatch):
    logged: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(schedules.log, "exception", lambda event, **details: logged.append((event, details)))
    queue = reports(NIGHTLY, Schedule("hourly", "0 * * * *", {}))
    broken = ScheduleRow("hourly", '{"name": "hourly", "cron": "?", "payload": {}}', 0)
    queue.store.write_schedules("reports", [broken])
    clock.advance(timedelta(days=1))
    assert tick(queue) == 1
    assert logged == [("schedule_failed", {"queue": "reports", "schedule": "hourly"})]


# Daylight saving: in Berlin 02:30 does not exist on 29 March and exists twice on 25 October 2026.


@pytest.mark.parametrize(
    ("cron", "begin", "ticks"),
    [
        ("30 2 * * *", datetime(2026, 3, 28, 22, tzinfo=UTC), ["29 01:00", "30 00:30", "31 00:30"]),
        ("30 2 * * *", datetime(2026, 10, 24, tzinfo=UTC), ["24 00:30", "25 00:30", "26 01:30"]),
        ("0 * * * *", datetime(2026, 10, 24, 23, 30, tzinfo=UTC), ["25 00:00", "25 01:00", "25 02:00", "25 03:00"]),
    ],
    ids=["a missing hour", "an hour that comes twice", "every hour"],
)
@pytest.mark.parametrize(
    "step_min", [60, 7 * 24 * 60, *(pytest.param(n, marks=pytest.mark.long) for n in (10, 24 * 60))]
)
def test_each_tick_of_a_day_that_changes_its_clocks_is_one_job(store, cron, begin, ticks, step_min):
    """Whether a sweeper comes often or seldom: then it finds what it missed, counting back."""
    clock = ManualClock(begin)
    schedule = Schedule("s", cron, {}, "Europe/Berlin", catch_up=len(ticks))
    queue = Queue("reports", task_lifecycle(), store, clock=clock, schedules=[schedule])
    last = datetime.fromisoformat(f"{begin:%Y-%m}-{ticks[-1]}+00:00")
    while datetime.fromtimestamp(clock.time_us / 1e6, UTC) < last:
        left = last - datetime.fromtimestamp(clock.time_us / 1e6, UTC)
        clock.advance(min(timedelta(minutes=step_min), left))
        tick(queue)
    assert keys(queue) == [f"s@{begin:%Y-%m}-{at.replace(' ', 'T')}:00Z" for at in ticks]


def test_ticks_are_counted_back_from_any_minute_of_an_hour_that_comes_twice():
    begin = round(datetime(2026, 10, 24, 22, tzinfo=UTC).timestamp()) * 1_000_000
    for cron in ("*/30 * * * *", "30 2 * * *"):
        schedule = Schedule("s", cron, {}, "Europe/Berlin", catch_up=99)
        ticks = [schedule.next_after(begin - 1)]
        for now in range(begin, begin + 5 * 3_600_000_000, 1_200_000_000):
            while ticks[-1] <= now:
                ticks.append(schedule.next_after(ticks[-1]))
            assert schedule.missed(begin, now) == ticks[:-1]


CRONS = st.sampled_from(["0 3 * * *", "*/15 * * * *", "30 2 * * *", "0 0 1 * *", "0 9 * * 1-5"])
ZONES = st.sampled_from(["UTC", "Europe/Istanbul", "Europe/Berlin", "America/New_York"])


@given(CRONS, ZONES, st.integers(0, 400 * 86_400), st.integers(1, 40 * 86_400), st.integers(1, 9))
@settings(max_examples=settings.default.max_examples // 3)
def test_missed_ticks_are_the_latest_of_all_ticks(cron, zone, begin_s, later_s, catch_up):
    schedule = Schedule("s", cron, {}, zone, catch_up=catch_up)
    begin = round(BEGIN.timestamp() + begin_s) * 1_000_000
    now, ticks = begin + later_s * 1_000_000, [schedule.next_after(begin)]
    first = ticks[0]
    while ticks[-1] <= now:
        ticks.append(schedule.next_after(ticks[-1]))
    assert schedule.missed(first, now) == ticks[:-1][-catch_up:]


def test_schedules_survive_a_reopened_file_and_keep_their_place_when_declared_again(tmp_path, clock):
    from kesin import open_store

    with ExitStack() as stack:
        for made in (0, 1):  # missed while no process ran
            store = open_store(tmp_path / "k.db")
            stack.callback(store.close)
            queue = Queue("reports", task_lifecycle(), store, clock=clock, schedules=[NIGHTLY])
            assert tick(queue) == made
            clock.advance(timedelta(days=1))
