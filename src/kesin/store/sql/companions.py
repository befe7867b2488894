"""What stands beside a job in the SQL stores: the jobs it comes after, its terms, its progress.

A job that comes after others is created in a state that waits, with news. The guard marks the rows
of a parent that comes to rest as ``news``, in the parent's own transaction. A worker or a sweeper
of the child's queue then looks at the children that have news. What that overlooks, as a parent
that ended while its child was being created, the sweeper's stage ``settle`` finds within a minute:
it looks at every job that waits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kesin.foundation.ids import is_id
from kesin.lifecycle.model import Change, Job
from kesin.store.errors import UnknownParents
from kesin.store.limits import MAX_BATCH, MAX_PAGE, valid_ids
from kesin.store.records import Filter, HeldClaim, Listing, NewJobRow, Progress
from kesin.store.sql.columns import job_columns
from kesin.store.sql.rules import SqlRules
from kesin.store.sql.statements import Statements

MAX_INDEXED = 10_000  # jobs that become searchable when their fields are declared


class SqlCompanions(SqlRules):
    """The part of the SQL stores that knows parents and progress."""

    skip_locked = ""  # how a statement passes by rows that another transaction has locked
    keep_lock = ""  # how it keeps rows from being deleted until its transaction ends
    now_or_clock: str  # the time that the caller gives, or the database's
    _pairs_given: str  # the parameter ``pairs`` as rows of child and parent

    def _is_id_in(self, column: str) -> str:
        """Whether a column of ids is among the parameter ``ids``."""
        return self._is_in(column, "ids")

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
            sql = (
                f"SELECT j.id FROM {self.dialect.table('job')} j"
                f" WHERE {self._is_id_in('j.id')} ORDER BY j.id{self.keep_lock}"
            )
            known |= {str(row[0]) for row in self._rows(sql, {"ids": self._array(ids)})}
        if missing := set(named) - known:
            raise UnknownParents(missing)

    def _write_parents(self, queue: str, jobs: Sequence[NewJobRow]) -> None:
        pairs = [(job.id, parent) for job in jobs for parent in job.after]
        table = self.dialect.table
        at_rest = "j.phase IN (2, 3) AND NOT coalesce(s.waits, FALSE)"
        for start in range(0, len(pairs), MAX_BATCH):
            self._rows(
                f"INSERT INTO {table('parent')} (child, parent, queue, done, news)"
                f" SELECT i.child, i.parent, {self.dialect.param('queue')},"
                f" {at_rest} AND coalesce(s.success, FALSE), TRUE"
                f" FROM {self._pairs_given} i JOIN {table('job')} j ON j.id = i.parent"
                f" LEFT JOIN {table('state')} s ON s.queue = j.queue AND s.name = j.state",
                {"queue": queue, "pairs": json.dumps(pairs[start : start + MAX_BATCH])},
            )

    def settle(self, queue: str, *, limit: int, now: int | None = None) -> int:
        statements = self.statements(queue)
        if not statements.lifecycle.waiting_states:
            return 0
        moved = 0
        while moved < limit:  # one that fails is news for those that come after it
            heard = self._heard(queue, min(limit - moved, MAX_BATCH))
            changes = [Change(job_id) for job_id in self._decided(heard)]
            outcomes = self.apply(queue, "settle", changes, role="clock", actor="clock", now=now)
            moved += sum(outcome.result == "moved" for outcome in outcomes)
            if not heard:
                break
        return moved

    def _heard(self, queue: str, limit: int) -> dict[str, bool]:
        """The jobs that have news, which is news no more → whether it is only of successes.

        Committed before anything is moved: what takes jobs first and then their parents would wait
        for it. If this process dies now, the sweeper's next walk finds them.
        """
        param, table = self.dialect.param, self.dialect.table("parent")
        rows = self._rows(
            f"WITH heard AS MATERIALIZED (SELECT child, parent FROM {table}"
            f" WHERE queue = {param('queue')} AND news ORDER BY child LIMIT {param('limit')}"
            f"{self.skip_locked}) UPDATE {table} SET news = FALSE"
            " WHERE (child, parent) IN (SELECT child, parent FROM heard) RETURNING child, done",
            {"queue": queue, "limit": limit},
        )
        heard: dict[str, bool] = {}
        for child, done in rows:
            heard[str(child)] = heard.get(str(child), True) and bool(done)
        return heard

    def _decided(self, heard: dict[str, bool]) -> list[str]:
        """Those that may move on: of successes, only the last one decides."""
        hopeful = [job_id for job_id, done in heard.items() if done]
        sql = (
            f"SELECT DISTINCT p.child FROM {self.dialect.table('parent')} p"
            f" WHERE {self._is_id_in('p.child')} AND NOT p.done"
        )
        rows = self._read(sql, {"ids": self._array(hopeful)}) if hopeful else []
        return sorted(heard.keys() - {str(row[0]) for row in rows})

    def parents(self, queue: str, job_id: str) -> list[Job]:
        self.statements(queue)
        return self._related("parent", "child", job_id, "")

    def children(self, queue: str, job_id: str, *, limit: int) -> list[Job]:
        self.statements(queue)
        return self._related("child", "parent", job_id, f" LIMIT {min(limit, MAX_BATCH)}")

    def _related(self, wanted: str, known: str, job_id: str, limit: str) -> list[Job]:
        if not is_id(job_id):
            return []
        table = self.dialect.table
        sql = (
            f"SELECT {job_columns(self.dialect)} FROM {table('parent')} p"
            f" JOIN {table('job')} j ON j.id = p.{wanted} JOIN {table('job_body')} b ON b.id = j.id"
            f" WHERE p.{known} = {self.dialect.param('id')} ORDER BY p.{wanted}{limit}"
        )
        return [Job._make(row) for row in self._read(sql, {"id": job_id})]

    # Titles and search

    def write_listing(self, queue: str, listing: Listing) -> None:
        param, table, before = self.dialect.param, self.dialect.table, self.listing(queue)
        if listing == before:
            return
        with self.transaction():
            self._rows(
                f"INSERT INTO {table('listing')} (queue, title, search)"
                f" VALUES ({param('queue')}, {param('title')}, {param('search')})"
                " ON CONFLICT (queue) DO UPDATE"
                " SET title = excluded.title, search = excluded.search",
                {"queue": queue, "title": listing.title, "search": json.dumps(listing.search)},
            )
            if listing.search != before.search:
                delete = f"DELETE FROM {table('search_term')} WHERE queue = {param('queue')}"
                self._rows(delete, {"queue": queue})
                self._index_newest(queue)

    def _index_newest(self, queue: str) -> None:
        """Write the terms of jobs that were there before their fields were declared."""
        body, table = self.dialect.table("job_body"), self.dialect.table
        sql = f"INSERT INTO indexing SELECT b.id, b.queue, b.tenant, b.payload FROM {body} b"
        ending = ""
        if self.dialect.name == "postgres":
            sql = (
                f"INSERT INTO {table('search_term')} (job_id, term, queue, tenant)"
                f" SELECT b.id, t.term, b.queue, b.tenant FROM {body} b"
                f" JOIN {table('listing')} l ON l.queue = b.queue"
                f" CROSS JOIN LATERAL {table('search_terms')}(b.payload, l.search) AS t(term)"
            )
            ending = " ON CONFLICT DO NOTHING"
        sql = f"{sql} WHERE {self._is_id_in('b.id')}{ending}"
        cursor: str | None = ""
        for _ in range(MAX_INDEXED // MAX_PAGE):
            if cursor is not None:
                page = self.jobs(queue, Filter(), limit=MAX_PAGE, cursor=cursor or None)
                self._rows(sql, {"ids": self._array([job.id for job in page.jobs])})
                cursor = page.cursor

    # Progress

    def _write_progress(self, queue: str, claim: HeldClaim, said: dict[str, Any]) -> bool:
        self.statements(queue)
        param, table = self.dialect.param, self.dialect.table
        values = f"j.id, j.claim_seq, {self.now_or_clock}, {param('fraction')}, {param('message')}"
        written = self._rows(
            f"INSERT INTO {table('progress')} (job_id, claim_seq, at, fraction, message)"
            f" SELECT {values} FROM {table('job')} j WHERE j.id = {param('id')}"
            f" AND j.queue = {param('queue')} AND j.phase = 1 AND j.claim_seq = {param('token')}"
            " ON CONFLICT (job_id) DO UPDATE SET claim_seq = excluded.claim_seq,"
            " at = excluded.at, fraction = excluded.fraction, message = excluded.message"
            " RETURNING 1",
            {"queue": queue, "id": claim[0], "token": claim[1], **said},
        )
        return bool(written)

    def progress(self, queue: str, ids: Sequence[str]) -> dict[str, Progress]:
        table = self.dialect.table
        rows = self._read(
            f"SELECT p.job_id, p.at, p.fraction, p.message FROM {table('progress')} p"
            f" JOIN {table('job')} j ON j.id = p.job_id AND j.claim_seq = p.claim_seq"
            f" WHERE {self._is_id_in('p.job_id')} AND j.phase = 1"
            f" AND j.queue = {self.dialect.param('queue')}",
            {"queue": queue, "ids": self._array(valid_ids(ids))},
        )
        return {str(row[0]): Progress(*row[1:]) for row in rows}
