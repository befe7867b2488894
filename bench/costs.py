"""What a job costs besides time: processors, bytes written, bytes on disk.

The work of PostgreSQL is that of all the server's processes, and what it writes is its log. SQLite
works in the processes that call it: theirs is the processor time, handlers and Python included, and
the bytes are all that they wrote, to the log and from there to the file.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psycopg

TICKS = 100  # a second, in /proc
LOG = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
TABLES = (
    "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relkind = 'r' AND n.nspname !~ '^(pg_|information_schema$)'"
)


class Cost(NamedTuple):
    """Of so many jobs, or of one."""

    cpu: float = 0.0  # seconds
    written: float = 0.0  # bytes
    disk: float = 0.0  # bytes, at the end

    def plus(self, other: Cost) -> Cost:
        return Cost(*(mine + its for mine, its in zip(self, other, strict=True)))

    def since(self, before: Cost) -> Cost:
        return Cost(*(mine - its for mine, its in zip(self, before, strict=True)))

    def a_job(self, jobs: int) -> Cost:
        return Cost(*(value / jobs for value in self))


def middle(costs: list[Cost]) -> Cost:
    """The median of each figure."""
    return Cost(*(median(values) for values in zip(*costs, strict=True)))


def own() -> Cost:
    """What this process has used so far."""
    lines = Path("/proc/self/io").read_text("ascii").splitlines()
    written = next(int(line.split()[1]) for line in lines if line.startswith("wchar"))
    return Cost(time.process_time(), written)


def _server_cpu(backend: int) -> float:
    """Of the server's processes: the first, those it started, and those that ended meanwhile."""
    first = int(_stat(backend)[1])
    spent = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pid, fields = int(folder.name), _stat(int(folder.name))
            if first in {pid, int(fields[1])}:
                spent += sum(map(int, fields[11:15]))
    return spent / TICKS


def _stat(pid: int) -> list[str]:
    """The fields behind the name: state, parent, …; user, system, and both of ended children."""
    return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()


class Meter:
    """Adds up what the database of an address does while the meter runs."""

    def __init__(self, address: str | Path) -> None:
        self._address = str(address)
        self._spent = Cost()
        self._server: psycopg.Connection | None = None
        if self._address.startswith("postgresql:"):
            self._server = psycopg.connect(self._address, autocommit=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the server; without one, this process."""
        before = self._now()
        yield
        self._spent = self._spent.plus(self._now().since(before))

    def _now(self) -> Cost:
        if self._server is None:
            return own()
        written = self._server.execute(LOG).fetchone() or (0,)
        return Cost(_server_cpu(self._server.info.backend_pid), written[0])

    def add(self, lane: Cost) -> None:
        """Count another process that works on a file."""
        if self._server is None:
            self._spent = self._spent.plus(lane)

    def read(self, jobs: int) -> Cost:
        """The cost of a job; the meter is closed."""
        if self._server is None:
            with closing(sqlite3.connect(self._address)) as file:
                file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            disk = Path(self._address).stat().st_size
        else:
            (disk,) = self._server.execute(TABLES).fetchone() or (0,)
            self._server.close()
        return self._spent._replace(disk=disk).a_job(jobs)
