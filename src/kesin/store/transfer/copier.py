"""Raw jobs with their history, as they are: `engine/transfer/queue_copy.py` verifies the copy."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kesin.lifecycle.model import Job
from kesin.store.declarations import DeclaredMoves, check_compatible
from kesin.store.records import Definition, Event, MoveCount, Note, RulesVersion


class JobVersion(NamedTuple):
    """The version of a job: its last event and its number of notes; both only grow."""

    id: str
    seq: int
    notes: int


VersionPage = tuple[list[JobVersion], str | None]  # and the cursor of the next page


class JobHistory(NamedTuple):
    """A job with all its events and notes, its slot, and the jobs it came after."""

    job: Job
    events: list[Event]
    notes: list[Note]
    slot: str | None = None
    parents: Sequence[str] = ()


class Copier(Protocol):
    """The operations that copying from and to a store needs."""

    def job_versions(self, queue: str, cursor: str | None, limit: int) -> VersionPage:
        """A page of versions and the next cursor; a job that moves meanwhile may be missed."""

    def versions_of(self, queue: str, ids: Sequence[str]) -> dict[str, JobVersion]:
        """Job id → version; unknown ids are absent."""

    def histories(self, queue: str, ids: Sequence[str]) -> list[JobHistory]:
        """These jobs, each with the events up to its current row."""

    def count_claimed(self, queue: str) -> int:
        """How many jobs are claimed."""

    def count_waiting(self, queue: str) -> int:
        """How many jobs wait for others: those of the queue, and others for jobs of it."""

    def put(self, queue: str, histories: Sequence[JobHistory]) -> None:
        """Write jobs in one transaction; copies with their id, key or slot are deleted."""

    def drop(self, queue: str, ids: Sequence[str]) -> None:
        """Delete these copies without a trace."""

    def replace_move_counts(
        self, queue: str, counts: Sequence[MoveCount], *, expected: list[MoveCount]
    ) -> bool:
        """Replace the counters if they equal ``expected``; return False otherwise."""

    def put_rules(self, queue: str, versions: Sequence[RulesVersion]) -> None:
        """Store these versions of the rules, unless the queue has some already."""

    def declare(self, queue: str, rows: DeclaredMoves, definition: Definition) -> None:
        """Add moves: a history may contain moves that the lifecycle no longer has."""


def new_moves(rows: DeclaredMoves, declared: DeclaredMoves) -> DeclaredMoves:
    """The moves that are not declared like this yet; raises StoreError if two contradict."""
    new = {edge: effects for edge, effects in rows.items() if declared.get(edge) != effects}
    for edge, effects in new.items():
        check_compatible(edge, effects, declared.get(edge))
    return new
