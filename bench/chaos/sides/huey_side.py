"""Huey on SQLite, flushed to disk; its consumer with worker threads, and retries."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from huey import SqliteHuey
from huey.consumer import Consumer

from bench.chaos.journal import Journal
from bench.chaos.settings import AT_ONCE, LOOK_S
from bench.chaos.sides.side import Fate, do

PACKAGE = "huey"


class Tasks:
    """The queue in its file and the one task it knows."""

    def __init__(self, where: str) -> None:
        # The time-out is for SQLite's lock: with several processes the default of 5 s can run out.
        self.huey = SqliteHuey(filename=where, fsync=True, timeout=60)
        self.job = self.huey.task(name="job", context=True, retries=3)(self._job)
        self.doing: Callable[[str], None] = lambda _: None

    def _job(self, task: Any) -> float:
        self.doing(task.id)
        return time.time()  # all it records of a success is what was returned


tasks_in = cache(Tasks)


def prepare(where: str) -> None:
    tasks_in(where)


def send(where: str, count: int) -> Iterable[object]:
    return [tasks_in(where).job().id for _ in range(count)]  # it has no bulk enqueue


def work(where: str, journal: Journal, seconds: float) -> None:
    logging.basicConfig(level=logging.ERROR)
    tasks = tasks_in(where)
    tasks.doing = lambda job: do(journal, job, seconds)
    Consumer(tasks.huey, workers=AT_ONCE, max_delay=LOOK_S).run()


def left(where: str) -> int:
    storage = tasks_in(where).huey.storage
    return int(storage.queue_size() + storage.schedule_size())


def fates(where: str) -> dict[str, Fate]:
    """What waits, and what has a result. What a worker has taken out is in neither."""
    huey = tasks_in(where).huey
    waiting = [huey.deserialize_task(one).id for one in huey.storage.enqueued_items()]
    found = {job: Fate("waiting") for job in waiting}
    for job in huey.storage.result_items():
        found[job] = Fate("done", (huey.result(job, preserve=True),))
    huey.storage.close()
    return found
