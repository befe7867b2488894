"""What stands beside a job in the SQL stores: the jobs it comes after, its terms, its progress.

A job that comes after others is created in a state that waits, with news. The guard marks the rows
of a parent that comes to rest as ``news``, in the parent's own transaction. A worker or a sweeper
of the child's queue then looks at the children that have news. What that overlooks, as a parent
that ended while its child was being created, the sweeper's stage ``settle`` finds within a minute:
it looks at every job that waits.
"""

import json
from collections.abc import Sequence
from typing import Any

from kesin.foundation.ids import is_id
from kesin.lifecycle.model import Job
from kesin.store.limits import FIRST_ID, MAX_BATCH, MAX_PAGE, valid_ids
from kesin.store.records import Filter, HeldClaim, Listing, Progress
from kesin.store.sql.columns import job_columns
from kesin.store.sql.rules import SqlRules
from kesin.store.sql.templates import template

MAX_INDEXED = 10_000  # jobs that become searchable when their fields are declared


class SqlCompanions(SqlRules):
    """The part of the SQL stores that knows parents and progress."""

    def parents(
        self, queue: str, job_id: str, *, limit: int = MAX_PAGE, after: str = FIRST_ID
    ) -> list[Job]:
        self.statements(queue)
        return self._related("parent", "child", job_id, limit, after)

    def children(self, queue: str, job_id: str, *, limit: int) -> list[Job]:
        self.statements(queue)
        return self._related("child", "parent", job_id, limit)

    def _related(
        self, wanted: str, known: str, job_id: str, limit: int, after: str = FIRST_ID
    ) -> list[Job]:
        if not is_id(job_id):
            return []
        table = self.dialect.table
        sql = (
            f"SELECT {job_columns(self.dialect)} FROM {table('parent')} p"
            f" JOIN {table('job')} j ON j.id = p.{wanted} JOIN {table('job_body')} b ON b.id = j.id"
            f" WHERE p.{known} = {self.dialect.param('id')}"
            f" AND p.{wanted} > {self.dialect.param('after')}"
            f" ORDER BY p.{wanted} LIMIT {min(limit, MAX_BATCH)}"
        )
        return [Job._make(row) for row in self._read(sql, {"id": job_id, "after": after})]

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
