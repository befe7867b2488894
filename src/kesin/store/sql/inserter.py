"""Enqueueing for both SQL stores, and what stands beside a job: parents, terms, progress.

A job that comes after others is created in a state that waits, with news. The guard marks the rows
of a parent that comes to rest as ``news``, in the parent's own transaction. A worker or a sweeper
of the child's queue then looks at the children that have news. What that overlooks, as a parent
that ended while its child was being created, the sweeper's stage ``settle`` finds within a minute:
it looks at every job that waits.
"""

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from kesin.foundation.ids import is_id
from kesin.lifecycle.model import Job
from kesin.store.errors import StoreError, UnknownParents
from kesin.store.limits import MAX_BATCH, MAX_PAGE, check_batch_size, valid_ids
from kesin.store.notify import Notifier
from kesin.store.records import Filter, HeldClaim, Listing, NewJobRow, Outcome, Progress
from kesin.store.sql.columns import InputRow
from kesin.store.sql.dialect import template
from kesin.store.sql.reader import SqlReader
from kesin.store.sql.statements import Statements

MAX_CONFLICT_ATTEMPTS = 3
MAX_INDEXED = 10_000  # jobs that become searchable when their fields are declared


class SqlInserter(SqlReader):
    """The half of the SQL stores that enqueues, and knows parents and progress."""

    def __init__(self) -> None:
        self._queues: dict[str, Statements] = {}
        self._notifier = Notifier()

    @abstractmethod
    def _rows(self, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement that may write, in the current transaction or its own."""

    @abstractmethod
    def _insert(self, statements: Statements, jobs: Sequence[NewJobRow], params: dict[str, Any]) -> set[str]:
        """Insert the jobs whose keys are free, all by the same move; return their ids."""

    def enqueue(self, queue: str, jobs: Sequence[NewJobRow], *, actor: str, now: int | None = None) -> list[Outcome]:
        statements = self.statements(queue)
        check_batch_size(jobs)
        first_by_key: dict[tuple[str, str | None], int] = {}
        first_indexes: list[int] = []  # for each job, the first job of the batch with its key
        for index, job in enumerate(jobs):
            key = (job.tenant, job.dedup_key)
            first_indexes.append(first_by_key.get(key, index))
            if job.dedup_key is not None and statements.holds_key(job):
                first_by_key.setdefault(key, index)
        pending = [index for index, first in enumerate(first_indexes) if first == index]
        by_index: dict[int, Outcome] = {}
        params = {"queue": queue, "actor": actor, "now": now}
        for _ in range(MAX_CONFLICT_ATTEMPTS):
            if not pending:
                break
            inserted = self._insert_new(statements, [jobs[index] for index in pending], params)
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
            taken = jobs[pending[0]].dedup_key
            raise StoreError("the job with key %(key)s keeps changing: try again", key=repr(taken))
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

    def _insert_new(self, statements: Statements, jobs: Sequence[NewJobRow], params: dict[str, Any]) -> set[str]:
        waiting = [job for job in jobs if job.after]
        if not waiting:
            return self._insert(statements, jobs, params)
        with self.transaction():
            self._hold_parents(waiting)
            inserted: set[str] = set()
            kinds = filter(None, (waiting, [job for job in jobs if not job.after]))
            # A key refuses jobs that come after its holder; one before it that holds none stays.
            for kind in sorted(kinds, key=lambda kind: statements.holds_key(kind[0])):
                inserted |= self._insert(statements, kind, params)
            pairs = [(job.id, id_) for job in waiting if job.id in inserted for id_ in job.after]
            for start in range(0, len(pairs), MAX_BATCH):
                batch = json.dumps(pairs[start : start + MAX_BATCH])
                self._rows(self._beside("add_parents"), {"queue": statements.queue, "pairs": batch})
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

    def _add_notes(self, statements: Statements, kind: str, notes: list[InputRow], actor: str, now: int | None) -> None:
        if not notes:
            return
        remark = statements.over_input("remark")
        params = {"queue": statements.queue, "kind": kind, "actor": actor, "now": now}
        self._rows(remark.sql, {**params, "items": statements.items(remark, notes)})

    # Beside a job

    def _related(self, queue: str, what: str, params: dict[str, Any]) -> list[Job]:
        self.statements(queue)
        param, wanted, known = self.dialect.param, "parent", "child"
        if what == "children":
            wanted, known = known, wanted
        of = " AND NOT p.done" if params["undone"] else ""
        sql = (
            f"{self._whole_jobs} JOIN {self.dialect.table('parent')} p ON p.{wanted} = j.id"
            f" WHERE p.{known} = {param('id')}{of} AND p.{wanted} > {param('after')}"
            f" ORDER BY p.{wanted} LIMIT {param('limit')}"
        )
        return list(map(Job._make, self._read(sql, params) if is_id(params["id"]) else ()))

    def meters(self, queue: str) -> dict[str, int]:
        rows = self._read(self._beside("meters"), {"queue": queue, "limit": MAX_BATCH})
        return {tenant: free_at for tenant, free_at in reversed(rows)}  # noqa: C416

    # Titles and search

    def write_listing(self, queue: str, listing: Listing) -> None:
        before = self.listing(queue)
        if listing == before:
            return
        row = {"queue": queue, "title": listing.title, "search": json.dumps(listing.search)}
        with self.transaction():
            self._rows(self._beside("put_listing"), row)
            if listing.search != before.search:
                self._rows(self._beside("drop_terms"), {"queue": queue})
                self._index_newest(queue)

    def _index_newest(self, queue: str) -> None:
        """Write the terms of jobs that were there before their fields were declared."""
        sql = self.dialect.write(template(self.dialect.name, "index_terms"))
        cursor: str | None = ""
        for _ in range(MAX_INDEXED // MAX_PAGE):
            if cursor is not None:
                page = self.jobs(queue, Filter(), limit=MAX_PAGE, cursor=cursor or None)
                self._rows(sql, {"ids": self.dialect.array([job.id for job in page.jobs])})
                cursor = page.cursor

    # Progress

    def _write_progress(self, queue: str, claim: HeldClaim, said: dict[str, Any]) -> bool:
        self.statements(queue)
        params = {"queue": queue, "id": claim[0], "token": claim[1], **said}
        return bool(self._rows(self._beside("put_progress"), params))

    def progress(self, queue: str, ids: Sequence[str]) -> dict[str, Progress]:
        params = {"queue": queue, "ids": self.dialect.array(valid_ids(ids))}
        rows = self._read(self._beside("progress"), params)
        return {str(row[0]): Progress(*row[1:]) for row in rows}
