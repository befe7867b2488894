"""Jobs written down as they are, with their history: for copies between stores, and nothing else.

Everywhere else a job changes by its moves. What is put here was a job of another store, and the
engine (``engine/transfer/queue_copy.py``) proves afterwards that it is the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kesin.lifecycle.model import Job
from kesin.store.records import Definition, Event, Flow, Note

Declared = Mapping[tuple[Any, ...], tuple[Any, ...]]  # (queue, move, from, to) → its effects


class Head(NamedTuple):
    """How far a job has come: both numbers only grow."""

    id: str
    seq: int
    notes: int


class History(NamedTuple):
    """A job with everything that is known about it."""

    job: Job
    events: list[Event]
    notes: list[Note]


class Copier(Protocol):
    """What a store offers to be copied from, and to."""

    def heads(self, queue: str, cursor: str | None, limit: int) -> tuple[list[Head], str | None]:
        """Some jobs of the queue, and where the next ones are; None at the end.

        All of them once while nothing moves; a job that moves meanwhile may be left out.
        """

    def heads_of(self, queue: str, ids: Sequence[str]) -> dict[str, Head]:
        """Those of these jobs; of no job, none."""

    def histories(self, queue: str, ids: Sequence[str]) -> list[History]:
        """These jobs, each with the events that lead to its row."""

    def claimed(self, queue: str) -> int:
        """How many jobs a worker has in hand."""

    def put(self, queue: str, histories: Sequence[History]) -> None:
        """Write these, all or none, in place of what is there of them.

        Whoever else has the key or the slot of one of them is an outdated copy, and goes.
        """

    def drop(self, queue: str, ids: Sequence[str]) -> None:
        """Remove these copies, as if they had never come."""

    def put_flows(self, queue: str, flows: Sequence[Flow], *, instead_of: list[Flow]) -> bool:
        """Write the counters in place of these; False where others are there, which stay."""

    def declared(self, queue: str) -> Declared:
        """Every move that the queue was ever declared with."""

    def declare(self, queue: str, rows: Declared, definition: Definition) -> None:
        """Add moves: a history may hold some that the lifecycle no longer has."""
