"""``make chaos``: what Kesin and its peers lose, double and leave lying when something breaks.

Each queue is given the same load, the same times and the same supervisor, and is used as its
manual says. What happened is told by the handlers and the producer, in a file of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.beside import say
from bench.chaos import settings
from bench.chaos.faults import FAULTS, Server, run
from bench.chaos.process import side_named
from bench.chaos.reading import READING
from bench.chaos.verdict import Verdict
from bench.report import Report
from tests.redis_server import DATABASES, RedisServer
from tests.servers import PostgresServer

ROOT = Path(__file__).parent.parent.parent
SERVED = ("killed", "outage", "stopped")
IN_A_FILE = ("killed", "stopped")  # there is no server to end
SIDES = {
    "Kesin, PostgreSQL": ("kesin", "postgres", SERVED),
    "Kesin, PostgreSQL, `batch=1`": ("kesin_single", "postgres", ("killed", "outage")),
    "Kesin, SQLite": ("kesin", "sqlite", IN_A_FILE),
    "Kesin, Redis": ("kesin", "redis", SERVED),
    "Procrastinate": ("procrastinate", "postgres", SERVED),
    "PgQueuer": ("pgqueuer", "postgres", SERVED),
    "Huey, SQLite": ("huey", "sqlite", IN_A_FILE),
}
TITLES = {
    "killed": f"kill -9, {len(settings.KILLS_AT)} times",
    "outage": "server killed and restarted",
    "stopped": "SIGSTOP beyond the lease",
}
HEAD = ("fault", "queue", "jobs", "lost", "doubled", "stuck", "ran again", "s", "workers survived")


@dataclass(frozen=True, slots=True)
class Row:
    """A run and what came of it."""

    fault: str
    queue: str
    verdict: Verdict

    def cells(self) -> tuple[str, ...]:
        one = self.verdict
        stuck = f"{one.stuck}, and {one.failed} failed" if one.failed else one.stuck
        counts = (one.jobs, one.lost, one.doubled, stuck, one.ran_again)
        recovery = "never" if one.recovery_s is None else f"{one.recovery_s:.1f}"
        lived = "yes" if not one.gone else f"no, {one.gone} exited"
        return (TITLES[self.fault], self.queue, *map(str, counts), recovery, lived)

    def line(self) -> dict[str, Any]:
        return {"fault": self.fault, "queue": self.queue, **self.verdict.line()}


def main() -> int:
    """Break everything, print the table; 1 if Kesin lost, doubled or left anything lying."""
    asked = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends everybody, as Ctrl-C does
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        rows, late = _runs(asked, _Servers(stack))
    if asked.json:
        print(json.dumps([row.line() for row in rows], indent=1))
    else:
        text = _report(rows, load)
        print(text)
        if asked.write:
            (ROOT / "docs" / "chaos.md").write_text(text, "utf-8")
    return int(late or not all(row.verdict.clean for row in rows if row.queue.startswith("Kesin")))


def _runs(asked: argparse.Namespace, servers: _Servers) -> tuple[list[Row], bool]:
    """One after the other; whether some were left out for want of time."""
    rows: list[Row] = []
    until = time.monotonic() + settings.LONGEST_S - settings.PATIENCE_S
    for fault in asked.faults:
        for queue, (name, store, faults) in SIDES.items():
            if not _wanted(asked, queue) or fault not in faults:
                continue
            if time.monotonic() > until:
                say(f"no time for {fault}, {queue}")
                return rows, True
            where = servers.place(store, f"{name}_{fault}")
            folder = servers.folder / f"{name}-{store}-{fault}"
            folder.mkdir()
            rows.append(Row(fault, queue, run(name, fault, where, folder, servers.of(store))))
            say(" | ".join(rows[-1].cells()))
    return rows, False


class _Servers:
    """One of each kind, started when first needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._postgres: PostgresServer | None = None
        self._redis: RedisServer | None = None
        self._databases = iter(range(1, DATABASES))
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="kesin-chaos-"))
        self.folder = Path(name)

    def place(self, store: str, name: str) -> str:
        """Where a queue of this name is kept: a file or database of its own."""
        if store == "sqlite":
            return str(self.folder / f"{name}.db")
        if store == "redis":
            self._redis = self._redis or self._stack.enter_context(RedisServer(durable=True))
            return self._redis.url(next(self._databases))
        self._postgres = self._postgres or self._stack.enter_context(PostgresServer(fsync=True))
        return self._postgres.create_database(name)

    def of(self, store: str) -> Server | None:
        if store == "redis" and self._redis:
            return Server(self._redis.kill, self._redis.start)
        if store == "postgres" and (server := self._postgres):
            return Server(lambda: server.stop("immediate"), server.start)
        return None


def _wanted(asked: argparse.Namespace, queue: str) -> bool:
    return not asked.queues or any(word in queue.lower() for word in asked.queues)


def _report(rows: list[Row], load: float) -> str:
    report = Report("What is lost when something breaks")
    packages = dict.fromkeys(side_named(SIDES[row.queue][0]).PACKAGE for row in rows)
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    report.say(
        f"Measured with `make chaos ARGS=--write` on {when}: {os.cpu_count()} cores, load average"
        f" {load:.0f} before the run, Python {platform.python_version()}, SQLite"
        f" {sqlite3.sqlite_version}; {versions}."
    )
    report.table(HEAD, [row.cells() for row in rows])
    for queue in SIDES:
        mine = [row.verdict for row in rows if row.queue == queue]
        if queue.startswith("Kesin") and mine:
            total = sum(one.lost + one.doubled + one.stuck for one in mine)
            report.aim(f"{queue}: lost, doubled or stuck", total, most=1)
    return report.text() + READING


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=", description=__doc__)
    parser.add_argument("--faults", nargs="+", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--queues", nargs="+", default=[], metavar="WORD", help="only those with it in their name")
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    parser.add_argument("--write", action="store_true", help="write the page in docs")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
