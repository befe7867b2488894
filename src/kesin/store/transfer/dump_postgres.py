"""A schema of PostgreSQL written down table by table in one snapshot, and put back in one go.

No pg_dump: it would have to be there, and as new as the server. Only rows are written; the tables
come from the migrations, whose checksums are known, and so does the guard. Putting back is one
transaction: whoever looks sees what was there before, or all of the backup.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import psycopg
from psycopg.abc import Buffer

from kesin.store.contract import Store
from kesin.store.postgres.connection import APPLICATION, CONNECTION, TimedConnection
from kesin.store.postgres.store import PostgresStore
from kesin.store.transfer.dump import (
    Advance,
    Dump,
    Dumped,
    NotRestored,
    Read,
    described,
    holding,
    refuse_holding,
)

PIECE: Final = 1 << 20  # bytes sent at a time
LOCK_S: Final = 30  # to wait for transactions of others
LEAVING_S: Final = 2.0  # who hung up a moment ago is still counted by the server
LOOK_S: Final = 0.05
_SMALLER: Final = 4  # rows of JSON shrink to less than that part of their tables
_FAST: Final = 1  # of gzip: the disk is slower than that
_LEFT: Final = {"schema_migration"}  # migrating writes it


def _write(rows: Iterable[Buffer], raw: BinaryIO, advance: Advance) -> None:
    """Rows come one by one, and are pressed together in larger pieces."""
    waiting, told = bytearray(), 0
    with gzip.GzipFile("", "wb", _FAST, raw, 0) as out:
        for row in rows:
            waiting += row
            if len(waiting) >= PIECE:
                out.write(waiting)
                waiting.clear()
                advance(raw.tell() - told)
                told = raw.tell()
        out.write(waiting)
    advance(raw.tell() - told)


class PostgresDump(Dump):
    """The schema in the database at a URL."""

    kind = "postgres"

    def __init__(self, url: str, *, schema: str = "kesin") -> None:
        self._url, self._schema = url, schema

    def size(self) -> int:
        with self._snapshot() as connection:
            rows = connection.execute(
                "SELECT coalesce(sum(pg_table_size(c.oid)), 0) FROM pg_class c"
                " WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'",
                (self._schema,),
            )
            return int(rows.fetchall()[0][0]) // _SMALLER

    def take(self, folder: Path, advance: Advance) -> Dumped:
        with self._snapshot() as connection:
            tables = self._tables(connection)
            dumped = described("postgres", self._reads(connection), tables)
            for table in sorted(tables.keys() - _LEFT):
                file = folder / f"{table}.copy.gz"
                file.touch(mode=0o600)
                columns = ", ".join(tables[table])
                sql = f"COPY {self._schema}.{table} ({columns}) TO STDOUT"
                with connection.cursor().copy(sql) as rows, file.open("wb") as raw:
                    _write(rows, raw, advance)
                dumped.tables[table] = tables[table]
            return dumped

    def require_room(self, *, replace: bool) -> None:
        with self._snapshot() as connection:
            self._refuse(connection, replace=replace)

    def room(self, folder: Path) -> tuple[Path, int]:
        """Nothing on this machine."""
        return folder, 0

    def put_back(
        self,
        folder: Path,
        dumped: Dumped,
        finish: Callable[[Store], None],
        advance: Advance,
        *,
        replace: bool,
    ) -> list[str]:
        store = PostgresStore(self._url, schema=self._schema, pool_size=1, listen=False)
        with closing(store), store.transaction() as connection, connection.patient():
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_S}s'")
            store.hold_schema()
            self._refuse(connection, replace=replace)
            connection.execute(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE")
            store.migrate(up_to=max(dumped.schema))
            self._require_known(connection, dumped)
            for table, columns in dumped.tables.items():
                self._fill(connection, folder / f"{table}.copy.gz", table, columns, advance)
            applied = store.migrate()
            finish(store)
        return applied

    def _require_known(self, connection: psycopg.Connection[Any], dumped: Dumped) -> None:
        """Names out of a manifest become part of statements: only those of the schema may."""
        known = self._tables(connection)
        for table, columns in dumped.tables.items():
            if not set(columns) <= set(known.get(table, ())):
                raise NotRestored(f"the backup is damaged: its schema has no such table {table!r}")

    def _fill(
        self,
        connection: psycopg.Connection[Any],
        file: Path,
        table: str,
        columns: list[str],
        advance: Advance,
    ) -> None:
        """Rows as they were; the guard looks away, and the replay afterwards does not."""
        where = f"{self._schema}.{table}"
        connection.execute(f"ALTER TABLE {where} DISABLE TRIGGER USER")
        with file.open("rb") as raw, gzip.GzipFile(fileobj=raw) as rows:
            told = 0
            with connection.cursor().copy(f"COPY {where} ({', '.join(columns)}) FROM STDIN") as to:
                while piece := rows.read(PIECE):
                    to.write(piece)
                    advance(raw.tell() - told)
                    told = raw.tell()
        connection.execute(f"ALTER TABLE {where} ENABLE TRIGGER USER")
        if "id" in columns:
            self._count_on(connection, where)
        connection.execute(f"ANALYZE {where}")

    @staticmethod
    def _count_on(connection: psycopg.Connection[Any], table: str) -> None:
        """Where ids are numbered by the server, the next one comes after the last."""
        found = connection.execute("SELECT pg_get_serial_sequence(%s, 'id')", (table,)).fetchall()
        if found[0][0] is not None:
            connection.execute(f"SELECT setval(%s, (SELECT max(id) FROM {table}))", found[0])

    def _refuse(self, connection: psycopg.Connection[Any], *, replace: bool) -> None:
        others = self._others(connection)
        for _ in range(round(LEAVING_S / LOOK_S)):
            if not others:
                break
            connection.execute("SELECT pg_sleep(%s), pg_stat_clear_snapshot()", (LOOK_S,))
            others = self._others(connection)
        if others:
            raise NotRestored(
                f"the database is in use (connections of kesin: {others}): stop the service, the"
                " workers and the sweeper on every machine, and run this again"
            )
        found = holding(self._reads(connection), self._tables(connection))
        refuse_holding(f"the schema {self._schema}", found, replace=replace)

    @staticmethod
    def _others(connection: psycopg.Connection[Any]) -> int:
        """How many connections of Kesin there are beside this one."""
        found: int = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = %s AND pid <> pg_backend_pid()",
            (APPLICATION,),
        ).fetchall()[0][0]
        return found

    @contextmanager
    def _snapshot(self) -> Iterator[psycopg.Connection[Any]]:
        with (
            closing(TimedConnection.connect(self._url, **CONNECTION)) as connection,
            connection.transaction(),
        ):
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield connection

    def _tables(self, connection: psycopg.Connection[Any]) -> dict[str, list[str]]:
        rows = connection.execute(
            "SELECT c.relname, array_agg(quote_ident(a.attname) ORDER BY a.attnum)"
            " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'"
            " AND a.attnum > 0 AND NOT a.attisdropped GROUP BY 1",
            (self._schema,),
        )
        return dict(rows.fetchall())

    def _reads(self, connection: psycopg.Connection[Any]) -> Read:
        def read(sql: str) -> list[tuple[Any, ...]]:
            return connection.execute(
                sql.replace("{", f"{self._schema}.").replace("}", "")
            ).fetchall()

        return read
