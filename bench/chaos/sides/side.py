"""What a queue has to offer to be here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from bench.chaos.journal import Journal

State = Literal["waiting", "running", "done", "failed"]


@dataclass(frozen=True, slots=True)
class Fate:
    """What the queue itself says of a job, and when it recorded each success."""

    state: State | None  # None: it knows nothing of it
    successes: tuple[float, ...] = ()


class Side(Protocol):
    """A module of this package."""

    PACKAGE: str

    def prepare(self, where: str) -> None:
        """Make tables."""

    def send(self, where: str, count: int) -> Iterable[object]:
        """Enqueue; the ids, once the queue has said that it has them."""

    def work(self, where: str, journal: Journal, seconds: float) -> None:
        """Be a worker process, until killed."""

    def left(self, where: str) -> int:
        """How many jobs are not at rest."""

    def fates(self, where: str) -> dict[str, Fate]:
        """Every job the queue knows."""


@contextmanager
def told(journal: Journal, job: object) -> Iterator[None]:
    """Around the waiting that is a job's work."""
    journal.note("begin", job)
    yield
    journal.note("end", job)


def do(journal: Journal, job: object, seconds: float) -> None:
    """A job, for handlers that block."""
    with told(journal, job):
        time.sleep(seconds)
