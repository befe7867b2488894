"""Dump of a PostgreSQL schema: every table in one snapshot, restored in one transaction.

It does not use pg_dump, which would have to be installed and as new as the server. Only rows are
written; the tables and the guard come from the migrations, whose checksums are known. Readers see
either the old contents or the complete backup.
"""

import gzip
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import psycopg
from psycopg.abc import Buffer

from kesin.store.postgres.connections import APPLICATION, CONNECTION, TimedConnection
from kesin.store.postgres.store import PostgresStore
from kesin.store.sql.dialect import shared_statements
from kesin.store.transfer.dump import LEFT_OUT, Advance, Dump, DumpManifest, Finish, RestoreRefused

Connection = psycopg.Connection[Any]

CHUNK_BYTES: Final = 1 << 20  # bytes sent at a time
LOCK_TIMEOUT_S: Final = 30  # to wait for locks of other transactions
DISCONNECT_WAIT_S: Final = 2.0  # the server still lists connections that have just closed
DISCONNECT_POLL_S: Final = 0.05
_COMPRESSION_RATIO: Final = 4  # compressed rows take less than a quarter of their tables
_GZIP_LEVEL: Final = 1  # the fastest: even so, the disk is the bottleneck
_QUERIES: Final = shared_statements("postgres/dump")
_EXCLUDED_TABLES: Final = {"schema_migration"}  # written by the migrations


def _write_compressed(rows: Iterable[Buffer], raw: BinaryIO, advance: Advance) -> None:
    """Compress rows into the file in large chunks; they arrive one by one."""
    buffer, reported = bytearray(), 0
    with gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, 0) as out:
        for row in rows:
            buffer += row
            if len(buffer) >= CHUNK_BYTES:
                out.write(buffer)
                buffer.clear()
                advance(raw.tell() - reported)
                reported = raw.tell()
        out.write(buffer)
    advance(raw.tell() - reported)


class PostgresDump(Dump):
    """The schema in the database at a URL."""

    kind = "postgres"

    def __init__(self, url: str, *, schema: str = "kesin") -> None:
        self._url, self._schema, self.schema_prefix = url, schema, f"{schema}."

    def size(self) -> int:
        with self._snapshot() as connection:
            rows = connection.execute(_QUERIES["size"], (self._schema,)).fetchall()
            return int(rows[0][0]) // _COMPRESSION_RATIO

    def write(self, folder: Path, advance: Advance) -> DumpManifest:
        with self._snapshot() as connection:
            tables, dumped = self._tables(connection), self._describe(connection)
            for table in sorted(tables.keys() - _EXCLUDED_TABLES):
                file = folder / f"{table}.copy.gz"
                file.touch(mode=0o600)
                columns = ", ".join(tables[table])
                query = f"SELECT {columns} FROM {self._schema}.{table}"
                sql = f"COPY ({query}{f' WHERE NOT {LEFT_OUT}' * (table == 'fact')}) TO STDOUT"
                with connection.cursor().copy(sql) as rows, file.open("wb") as raw:
                    _write_compressed(rows, raw, advance)
                dumped.tables[table] = tables[table]
            return dumped

    def check_target(self, *, replace: bool) -> None:
        with self._snapshot() as connection:
            self._check_target(connection, replace=replace)

    def required_space(self, folder: Path) -> tuple[Path, int]:
        """No space on this machine."""
        return folder, 0

    def restore(self, folder: Path, dumped: DumpManifest, finish: Finish, advance: Advance, *, replace: bool) -> None:
        store = PostgresStore(self._url, schema=self._schema, pool_size=1, listen=False)
        with closing(store), store.transaction() as connection, connection.without_timeout():
            connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")
            store.lock_schema()
            self._check_target(connection, replace=replace)
            connection.execute(f"DROP SCHEMA IF EXISTS {self._schema} CASCADE")
            store.migrate(up_to=max(dumped.schema))
            self._require_known(connection, dumped)
            for table, columns in dumped.tables.items():
                self._load_table(connection, folder / f"{table}.copy.gz", table, columns, advance)
            store.migrate()
            finish(store)

    def _require_known(self, connection: Connection, dumped: DumpManifest) -> None:
        """Refuse unknown tables and columns: names of a manifest become part of statements."""
        known = self._tables(connection)
        for table, columns in dumped.tables.items():
            if not set(columns) <= set(known.get(table, ())):
                why = f"its schema has no such table {table!r}"
                raise RestoreRefused(f"the backup is damaged: {why}")

    def _load_table(self, connection: Connection, file: Path, table: str, columns: list[str], advance: Advance) -> None:
        """Load a table with the guard disabled; the replay afterwards checks the histories."""
        qualified_table = f"{self._schema}.{table}"
        connection.execute(f"ALTER TABLE {qualified_table} DISABLE TRIGGER USER")
        sql, reported = f"COPY {qualified_table} ({', '.join(columns)}) FROM STDIN", 0
        copying = connection.cursor().copy(sql)
        with file.open("rb") as raw, gzip.GzipFile(fileobj=raw) as rows, copying as to:
            while chunk := rows.read(CHUNK_BYTES):
                to.write(chunk)
                advance(raw.tell() - reported)
                reported = raw.tell()
        connection.execute(f"ALTER TABLE {qualified_table} ENABLE TRIGGER USER")
        if "id" in columns:
            sql = "SELECT pg_get_serial_sequence(%s, 'id')"
            [(sequence,)] = connection.execute(sql, (qualified_table,)).fetchall()
            if sequence is not None:  # generated ids go on after the largest one
                sql = f"SELECT setval(%s, (SELECT max(id) FROM {qualified_table}))"
                connection.execute(sql, (sequence,))
        connection.execute(f"ANALYZE {qualified_table}")

    def _check_target(self, connection: Connection, *, replace: bool) -> None:
        n, pause = 0, "SELECT pg_sleep(%s), pg_stat_clear_snapshot()"
        for _ in range(round(DISCONNECT_WAIT_S / DISCONNECT_POLL_S) + 1):
            if not (n := self._other_connections(connection)):
                break
            connection.execute(pause, (DISCONNECT_POLL_S,))
        else:
            raise RestoreRefused(
                f"the database is in use (connections from Kesin: {n}): stop the"
                " service, the workers and the sweeper on every machine, and run this again"
            )
        self._refuse_overwrite(f"the schema {self._schema}", connection, replace=replace)

    @staticmethod
    def _other_connections(connection: Connection) -> int:
        return int(connection.execute(_QUERIES["other_connections"], (APPLICATION,)).fetchall()[0][0])

    @contextmanager
    def _snapshot(self) -> Iterator[Connection]:
        with closing(TimedConnection.connect(self._url, **CONNECTION)) as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield connection

    def _tables(self, connection: Connection) -> dict[str, list[str]]:
        return dict(connection.execute(_QUERIES["tables"], (self._schema,)).fetchall())
