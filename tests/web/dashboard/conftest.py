"""A queue of one's own in a service that a whole module shares: making a service takes longer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.lifecycle.task import task_lifecycle
from tests.web.conftest import World

_numbers = itertools.count(1)


class Desk(World):
    """The shared world, whose tasks are those of one test."""

    def __init__(self, shared: World, name: str) -> None:
        self.__dict__.update(shared.__dict__)
        self.name = name
        self.page = f"/dashboard/queues/{name}"

    @property
    def task(self) -> Queue:
        return self.service.queues[self.name]

    def job(
        self, site: str = "north", queue: str | None = None, key: str | None = None, **how: Any
    ) -> str:
        return super().job(site, queue or self.name, key, **how)


@pytest.fixture
def desk(shared_world: World) -> Iterator[Desk]:
    """An empty queue of tasks, and Ayşe, who may do everything with it."""
    queues = shared_world.service.queues
    made = Desk(shared_world, f"task{next(_numbers)}")
    queues[made.name] = Queue(
        made.name, task_lifecycle(), shared_world.store, clock=shared_world.clock
    )
    made.known("ayse", "operator", all_sites=True)
    yield made
    del queues[made.name]
