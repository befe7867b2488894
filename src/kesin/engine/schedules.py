"""Schedules: each tick enqueues a job under a key held for good, so none is made twice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from kesin.engine.new_job import NewJob
from kesin.engine.validation import BadInput, bad_field, checked_name, json_text
from kesin.foundation.clock import datetime_of
from kesin.foundation.logs import Logger
from kesin.store.contract import Store
from kesin.store.limits import MAX_TENANT
from kesin.store.records import Outcome, ScheduleRow

if TYPE_CHECKING:
    from kesin.engine.queue import Queue

log = Logger("kesin.schedules")

MAX_NAME = 64  # characters
MAX_CATCH_UP = 1_000
LOOK_BACK = 20  # ticks in which the last job of a schedule is looked for
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True)
class Schedule:
    """A job for each tick of ``cron`` in ``timezone``, and for up to ``catch_up`` missed ticks.

    If daylight saving time repeats a fixed hour of ``cron``, only the first occurrence has a tick.
    If it skips a fixed hour, the tick comes as soon as the clock has jumped over that hour.
    """

    name: str
    cron: str
    payload: Any
    timezone: str = "UTC"
    tenant: str = "default"
    catch_up: int = 1

    def __post_init__(self) -> None:
        checked_name(self.name, "name", MAX_NAME)
        checked_name(self.tenant, "tenant", MAX_TENANT)
        json_text(self.payload, "payload")
        if type(self.catch_up) is not int or not 1 <= self.catch_up <= MAX_CATCH_UP:
            why = f"catch_up must be a whole number in 1…{MAX_CATCH_UP}, got {self.catch_up!r}"
            raise bad_field("catch_up", why)
        try:
            zone = ZoneInfo(self.timezone)
        except (KeyError, ValueError, TypeError, OSError):
            raise bad_field("timezone", f"there is no time zone {self.timezone!r}") from None
        try:
            next(CronSim(self.cron, datetime(2024, 1, 1, tzinfo=zone)))
        except (CronSimError, StopIteration, TypeError, AttributeError):
            why = f"{self.cron!r} is not a valid cron expression, or never matches"
            raise bad_field("cron", why) from None

    def next_after(self, at_us: int) -> int:
        """The first tick after this time."""
        return next(self._ticks(at_us))

    def missed(self, since_us: int, now_us: int) -> list[int]:
        """The missed ticks to enqueue, from ``since_us`` to now, oldest first."""
        return [at for at in self.latest(now_us, self.catch_up) if at >= since_us][::-1]

    def latest(self, now_us: int, count: int) -> list[int]:
        """The latest ticks up to now, newest first."""
        # Counted back from an hour that comes for the second time, some would be skipped.
        repeated = datetime_of(now_us).astimezone(ZoneInfo(self.timezone)).fold
        ticks = self._ticks(now_us + repeated * 7_200_000_000, back=True)  # beyond it
        return list(islice((at for at in ticks if at <= now_us), count))

    def _ticks(self, at_us: int, *, back: bool = False) -> Iterator[int]:
        begin = datetime_of(at_us).astimezone(ZoneInfo(self.timezone))
        for tick in CronSim(self.cron, begin + _INSTANT if back else begin, reverse=back):
            yield round(tick.timestamp()) * 1_000_000

    @property
    def definition(self) -> str:
        """The schedule in its stored form."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)

    @classmethod
    def stored(cls, row: ScheduleRow) -> Schedule:
        """The schedule that a stored row describes."""
        return cls(**json.loads(row.definition))

    def key_at(self, at_us: int) -> str:
        """The key of the tick's job."""
        return f"{self.name}@{datetime_of(at_us):%Y-%m-%dT%H:%M:%SZ}"

    def job_at(self, at_us: int) -> NewJob:
        """The tick's job."""
        return NewJob(self.payload, self.key_at(at_us), self.tenant, once=True)


def declare_schedules(queue: Queue, schedules: Sequence[Schedule]) -> None:
    """Make these the queue's schedules; a changed one begins with its next tick from now."""
    if isinstance(schedules, Schedule):
        raise BadInput("bad_schedule", "schedules", "give a list of schedules, not a single one")
    for schedule in schedules:
        if not isinstance(schedule, Schedule):
            raise BadInput("bad_schedule", "schedules", f"{schedule!r} is not a Schedule")
        queue.row_of(schedule.job_at(queue.now()))  # what the queue would refuse at each tick
    by_name = {schedule.name: schedule for schedule in schedules}
    if len(by_name) < len(schedules):
        raise bad_field("name", f"two schedules of {queue.name} have the same name")
    store, now = queue.store, queue.now()
    with store.transaction():
        known = {row.name: row.definition for row in store.schedules(queue.name)}
        rows = [
            ScheduleRow(name, schedule.definition, schedule.next_after(now))
            for name, schedule in by_name.items()
            if known.get(name) != schedule.definition
        ]
        gone = sorted(known.keys() - by_name.keys())
        if rows or gone:
            store.write_schedules(queue.name, rows, gone=gone)


def tick(queue: Queue) -> int:
    """Enqueue the jobs of ticks that have come; a schedule that fails holds up no other."""
    now, enqueued = queue.now(), 0
    for row in queue.store.schedules(queue.name):
        try:
            # Its time has come, or was set by a clock that ran ahead.
            if row.next_at <= now or row.next_at > Schedule.stored(row).next_after(now):
                enqueued += _tick_one(queue, row.name, now)
        except (BadInput, TypeError, ValueError):
            log.exception("schedule_failed", queue=queue.name, schedule=row.name)
    if enqueued:
        log.info("ticked", queue=queue.name, jobs=enqueued)
    return enqueued


def _tick_one(queue: Queue, name: str, now: int) -> int:
    enqueued = 0
    with queue.store.transaction():
        for row in queue.store.schedules(queue.name, lock=[name]):
            schedule = Schedule.stored(row)
            jobs = [schedule.job_at(at) for at in schedule.missed(row.next_at, now)]
            for outcome in queue.enqueue_many(jobs, actor=f"schedule:{name}"):
                if isinstance(outcome, BadInput):
                    raise outcome
                enqueued += outcome.result == "inserted"
            next_row = row._replace(next_at=schedule.next_after(now))
            queue.store.write_schedules(queue.name, [next_row])
    return enqueued


class ListedSchedule(NamedTuple):
    """A schedule with its next tick and the job of its latest one, if it is not pruned."""

    queue: str
    schedule: Schedule
    next_at: int
    last_job: str | None


def listed_schedules(store: Store, queue: str, now: int) -> list[ListedSchedule]:
    found = []
    for row in store.schedules(queue):
        schedule = Schedule.stored(row)
        keys = [schedule.key_at(at) for at in schedule.latest(now, LOOK_BACK)]
        ids = store.ids_by_key(queue, schedule.tenant, keys)
        last = next((ids[key] for key in keys if key in ids), None)
        found.append(ListedSchedule(queue, schedule, row.next_at, last))
    return found


def run_now(queue: Queue, name: str, *, actor: str) -> Outcome:
    """Enqueue a job of a schedule now, in addition to its ticks."""
    for row in queue.store.schedules(queue.name):
        if row.name == name:
            schedule = Schedule.stored(row)
            return queue.enqueue(schedule.payload, tenant=schedule.tenant, actor=actor)
    raise BadInput("unknown_schedule", "name", f"the queue {queue.name} has no schedule {name!r}")
