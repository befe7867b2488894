"""A queue for each test in a service that its module shares: creating a service takes longer."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.lifecycle.task import task_lifecycle
from tests.web.conftest import World

_numbers = itertools.count(1)


class TaskQueue(World):
    """The shared world with a queue of tasks for one test."""

    def __init__(self, shared: World, name: str) -> None:
        self.__dict__.update(shared.__dict__)
        self.name = name
        self.page = f"/dashboard/queues/{name}"

    @property
    def task(self) -> Queue:
        return self.service.queues[self.name]

    def job(self, site: str = "north", queue: str | None = None, key: str | None = None, **how: Any) -> str:
        return super().job(site, queue or self.name, key, **how)


@pytest.fixture
def tasks(shared_world: World) -> Iterator[TaskQueue]:
    """An empty queue of tasks, and Ayşe, an operator of every site."""
    queues = shared_world.service.queues
    tasks = TaskQueue(shared_world, f"task{next(_numbers)}")
    queues[tasks.name] = Queue(tasks.name, task_lifecycle(), shared_world.store, clock=shared_world.clock)
    tasks.known("ayse", "operator", all_sites=True)
    yield tasks
    del queues[tasks.name]
