"""Enqueueing for both SQL stores: insert jobs, find holders of keys, note duplicates."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from kesin.foundation.messages import Message
from kesin.store.errors import StoreError
from kesin.store.limits import check_batch_size
from kesin.store.notify import Notifier
from kesin.store.records import NewJobRow, Outcome
from kesin.store.sql.input_rows import InputRow
from kesin.store.sql.reader import SqlReader
from kesin.store.sql.statements import Statements

MAX_CONFLICT_ATTEMPTS = 3


class SqlInserter(SqlReader):
    """The enqueueing half of the SQL stores."""

    def __init__(self) -> None:
        self._queues: dict[str, Statements] = {}
        self._notifier = Notifier()

    @abstractmethod
    def _rows(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement that may write, in the current transaction or its own."""

    @abstractmethod
    def _insert_new(
        self, statements: Statements, jobs: Sequence[NewJobRow], params: dict[str, Any]
    ) -> set[str]:
        """Insert the jobs whose keys are free, with the jobs they come after; return their ids."""

    @abstractmethod
    def _insert(
        self, statements: Statements, jobs: Sequence[NewJobRow], params: dict[str, Any]
    ) -> set[str]:
        """Insert the jobs whose keys are free, all by the same move; return their ids."""

    def enqueue(
        self, queue: str, jobs: Sequence[NewJobRow], *, actor: str, now: int | None = None
    ) -> list[Outcome]:
        statements = self.statements(queue)
        check_batch_size(jobs)
        initial = statements.lifecycle.initial
        first_by_key: dict[tuple[str, str], int] = {}
        first_indexes: list[int] = []  # for each job, the first job of the batch with its key
        for index, job in enumerate(jobs):
            if job.dedup_key is None or not initial.holds_key:
                first_indexes.append(index)
            else:
                first_indexes.append(first_by_key.setdefault((job.tenant, job.dedup_key), index))
        pending = [index for index, first in enumerate(first_indexes) if first == index]
        by_index: dict[int, Outcome] = {}
        params = {"queue": queue, "actor": actor, "now": now}
        for _ in range(MAX_CONFLICT_ATTEMPTS):
            if not pending:
                break
            new_jobs = [jobs[index] for index in pending]
            inserted = self._insert_new(statements, new_jobs, params)
            by_index |= {
                index: Outcome("inserted", job.id, statements.creates(job).to, 1)
                for index in pending
                if (job := jobs[index]).id in inserted
            }
            pending = [index for index in pending if index not in by_index]
            left_jobs = [jobs[index] for index in pending]
            held = self._find_holders(self._rows, statements, left_jobs) if left_jobs else []
            for position, holder, state, seq in held:
                by_index[pending[position]] = Outcome("duplicate", holder, state, seq)
            pending = [index for index in pending if index not in by_index]
        if pending:
            key = jobs[pending[0]].dedup_key
            raise StoreError(
                Message("the key %(key)s keeps changing hands: try again", key=repr(key))
            )
        if any(outcome.result == "inserted" for outcome in by_index.values()):
            self._notifier.notify(queue)
        outcomes = [
            by_index[first] if first == index else by_index[first]._replace(result="duplicate")
            for index, first in enumerate(first_indexes)
        ]
        notes = [
            InputRow(job.tenant, outcome.id)
            for job, outcome in zip(jobs, outcomes, strict=True)
            if outcome.result == "duplicate"
        ]
        self._add_notes(statements, "duplicate", notes, actor, now)
        return outcomes

    def _add_notes(
        self, statements: Statements, kind: str, notes: list[InputRow], actor: str, now: int | None
    ) -> None:
        """Add notes to these jobs, in one statement."""
        if not notes:
            return
        remark = statements.over_input("remark")
        params = {"queue": statements.queue, "kind": kind, "actor": actor, "now": now}
        self._rows(remark.sql, {**params, "items": statements.items(remark, notes)})
