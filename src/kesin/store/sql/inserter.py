"""Enqueueing for both SQL stores: insert jobs, find holders of keys, note duplicates."""

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from kesin.foundation.ids import is_id
from kesin.foundation.messages import Message
from kesin.store.errors import StoreError, UnknownParents
from kesin.store.limits import MAX_BATCH, check_batch_size
from kesin.store.notify import Notifier
from kesin.store.records import NewJobRow, Outcome
from kesin.store.sql.input_rows import InputRow
from kesin.store.sql.reader import SqlReader
from kesin.store.sql.statements import Statements
from kesin.store.sql.templates import shared_statements

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
    def _insert(
        self, statements: Statements, jobs: Sequence[NewJobRow], params: dict[str, Any]
    ) -> set[str]:
        """Insert the jobs whose keys are free, all by the same move; return their ids."""

    def _beside(self, name: str) -> str:
        """The statement of this name about what stands beside the jobs."""
        return self.dialect.write(shared_statements("beside")[name])

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

    def _insert_new(
        self, statements: Statements, jobs: Sequence[NewJobRow], params: dict[str, Any]
    ) -> set[str]:
        waiting = [job for job in jobs if job.after]
        if not waiting:
            return self._insert(statements, jobs, params)
        with self.transaction():
            self._hold_parents(waiting)
            inserted = self._insert(statements, waiting, params)
            others = [job for job in jobs if not job.after]
            if others:
                inserted |= self._insert(statements, others, params)
            self._write_parents(statements.queue, [job for job in waiting if job.id in inserted])
        return inserted

    def _hold_parents(self, jobs: Sequence[NewJobRow]) -> None:
        """Let no parent be pruned until the children are committed."""
        named = sorted({parent for job in jobs for parent in job.after})
        known: set[str] = set()
        for start in range(0, len(named), MAX_BATCH):
            ids = [job_id for job_id in named[start : start + MAX_BATCH] if is_id(job_id)]
            rows = self._rows(self._beside("hold_parents"), {"ids": self.dialect.array(ids)})
            known |= {str(row[0]) for row in rows}
        if missing := set(named) - known:
            raise UnknownParents(missing)

    def _write_parents(self, queue: str, jobs: Sequence[NewJobRow]) -> None:
        pairs = [(job.id, parent) for job in jobs for parent in job.after]
        for start in range(0, len(pairs), MAX_BATCH):
            batch = json.dumps(pairs[start : start + MAX_BATCH])
            self._rows(self._beside("add_parents"), {"queue": queue, "pairs": batch})

    def _add_notes(
        self, statements: Statements, kind: str, notes: list[InputRow], actor: str, now: int | None
    ) -> None:
        """Add notes to these jobs, in one statement."""
        if not notes:
            return
        remark = statements.over_input("remark")
        params = {"queue": statements.queue, "kind": kind, "actor": actor, "now": now}
        self._rows(remark.sql, {**params, "items": statements.items(remark, notes)})
