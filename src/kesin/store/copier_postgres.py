"""Copies from and to a PostgreSQL schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kesin.foundation.text import wire_json
from kesin.lifecycle.model import HOT_COLUMNS
from kesin.store.copier import History
from kesin.store.copier_sql import (
    BODY_COLUMNS,
    NOTE_COLUMNS,
    SqlCopier,
    body_row,
    job_row,
    note_rows,
)
from kesin.store.records import Event


class PostgresCopier(SqlCopier):
    """A table's rows travel as one JSON document, and are one statement."""

    ids_among = "{} = ANY(%(ids)s::uuid[])"

    @contextmanager
    def _opened(self, queue: str) -> Iterator[None]:
        said = (
            "SELECT set_config('kesin.copying', txid_current()::text, true),"
            " set_config('kesin.copied_queue', %(queue)s, true)"
        )
        self._store._rows(said, {"queue": queue})  # noqa: SLF001
        yield
        self._store._rows("SELECT set_config('kesin.copying', '', true)", {})  # noqa: SLF001

    def _fill(self, histories: Sequence[History]) -> None:
        jobs = [one.job for one in histories]
        rows = [{**job_row(job), "keyed": job.dedup_key is not None} for job in jobs]
        self._insert("job", (*HOT_COLUMNS, "keyed"), rows, slot=self._of("i", "slot"))
        held = f"CASE WHEN {self._of('j', 'holds_key')} THEN i.dedup_key END"
        self._insert(
            "job_body",
            BODY_COLUMNS,
            [body_row(job) for job in jobs],
            f" JOIN {self._table('job')} j ON j.id = i.id",
            held_key=held,
        )
        self.insert("event", Event._fields, [row for one in histories for row in one.events])
        self.insert("note", NOTE_COLUMNS, note_rows(histories))

    def _hold_flows(self) -> None:
        """Others would add rows, or sum them up, between the look and the writing."""
        sql = f"LOCK TABLE {self._table('flow')} IN SHARE ROW EXCLUSIVE MODE"
        self._store._rows(sql, {})  # noqa: SLF001

    def _of(self, row: str, column: str) -> str:
        """What the last move of the job says of the state it is in."""
        return (
            f"(SELECT d.{column} FROM {self._table('declared')} d WHERE d.queue = {row}.queue"
            f" AND d.move = {row}.move AND d.to_state = {row}.state LIMIT 1)"
        )

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows in their order; one whose key is taken is left out."""
        named = [dict(zip(columns, row, strict=True)) for row in rows]
        self._insert(table, columns, named, " ON CONFLICT DO NOTHING")

    def _insert(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[dict[str, Any]],
        rest: str = "",
        **more: str,
    ) -> None:
        """Rows in their order; ``more`` are columns that follow from others."""
        if not rows:
            return
        names = ", ".join((*columns, *more))
        values = ", ".join((*(f"i.{name}" for name in columns), *more.values()))
        kind = self._table(table)
        self._store._rows(  # noqa: SLF001
            f"INSERT INTO {kind} ({names}) SELECT {values}"
            f" FROM json_populate_recordset(NULL::{kind}, %(rows)s::json) i{rest}",
            {"rows": wire_json(rows)},
        )
