"""What both SQL stores do alike to enqueue: insert, find who holds a key, note the duplicates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kesin.lifecycle.model import NO_STAMPS
from kesin.store.errors import StoreError
from kesin.store.limits import bounded
from kesin.store.notify import Pulses
from kesin.store.records import NewJob, Outcome
from kesin.store.sql.reader import SqlReader
from kesin.store.sql.statements import Statements

CONFLICT_TRIES = 3


class Remark(NamedTuple):
    """A note about to be left beside a job."""

    id: str
    tenant: str
    note: str | None = None
    stamps: Mapping[str, int] = NO_STAMPS


class SqlInserter(SqlReader):
    """The enqueueing half of the SQL stores."""

    def __init__(self) -> None:
        self._queues: dict[str, Statements] = {}
        self._pulses = Pulses()

    @abstractmethod
    def _rows(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement that may write, in the current transaction or one of its own."""

    @abstractmethod
    def _insert(
        self, statements: Statements, jobs: Sequence[NewJob], params: dict[str, Any]
    ) -> set[str]:
        """Insert what has no holder; the ids born."""

    def enqueue(
        self, queue: str, jobs: Sequence[NewJob], *, actor: str, now: int | None = None
    ) -> list[Outcome]:
        statements = self.statements(queue)
        bounded(jobs)
        initial = statements.lifecycle.initial
        twins: dict[tuple[str, str], int] = {}
        first: list[int] = []  # for each job, the first one of the batch with its key
        for index, job in enumerate(jobs):
            if job.dedup_key is None or not initial.holds_key:
                first.append(index)
            else:
                first.append(twins.setdefault((job.tenant, job.dedup_key), index))
        left = [index for index, twin in enumerate(first) if twin == index]
        answers: dict[int, Outcome] = {}
        params = {"queue": queue, "actor": actor, "now": now}
        for _ in range(CONFLICT_TRIES):
            if not left:
                break
            asked = [jobs[index] for index in left]
            born = self._insert(statements, asked, params)
            answers |= {
                index: Outcome("inserted", jobs[index].id, initial.name, 1)
                for index in left
                if jobs[index].id in born
            }
            left = [index for index in left if index not in answers]
            holders = self._holders(statements, [jobs[index] for index in left]) if left else {}
            for position, (holder, state, seq) in holders.items():
                answers[left[position]] = Outcome("duplicate", holder, state, seq)
            left = [index for index in left if index not in answers]
        if left:
            raise StoreError(f"the key {jobs[left[0]].dedup_key!r} keeps changing hands: try again")
        if any(answer.result == "inserted" for answer in answers.values()):
            self._pulses.beat(queue)
        outcomes = [
            answers[twin] if twin == index else answers[twin]._replace(result="duplicate")
            for index, twin in enumerate(first)
        ]
        self._note_duplicates(queue, jobs, outcomes, actor, now)
        return outcomes

    def _holders(
        self, statements: Statements, jobs: Sequence[NewJob]
    ) -> dict[int, tuple[str, str, int]]:
        """Index of a new job → (id, state, seq) of the job that holds its key."""
        items = statements.items(statements.holders, jobs)
        rows = self._rows(statements.holders.sql, {"queue": statements.queue, "items": items})
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    def _note_duplicates(
        self,
        queue: str,
        jobs: Sequence[NewJob],
        outcomes: list[Outcome],
        actor: str,
        now: int | None,
    ) -> None:
        remarks = [
            Remark(outcome.id, job.tenant)
            for job, outcome in zip(jobs, outcomes, strict=True)
            if outcome.result == "duplicate"
        ]
        if remarks:
            self._remark(self.statements(queue), "duplicate", remarks, actor, now)

    def _remark(
        self,
        statements: Statements,
        kind: str,
        remarks: Sequence[Remark],
        actor: str,
        now: int | None,
    ) -> None:
        """Leave notes beside these jobs, in one statement."""
        params = {"queue": statements.queue, "kind": kind, "actor": actor, "now": now}
        params["items"] = statements.items(statements.remark, remarks)
        self._rows(statements.remark.sql, params)
