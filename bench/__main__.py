"""``make bench``: Kesin and its peers, side by side, in one run on one machine.

Figures depend on the machine; ratios hardly do. Rounds are interleaved, so that a slow minute of
the machine falls on everybody, and the best round of each counts.
"""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import NamedTuple

from bench import dashboard, floors, growth, lanes, oci, optimizer, pdf, peers_run, redis
from bench.report import Report
from tests.servers import PostgresServer

ROOT = Path(__file__).parent.parent
Address = Callable[[str], str]  # the name of a database to be → where it is


def main() -> int:
    """Measure, print, and optionally write the report."""
    asked = _arguments()
    if asked.what in ("all", "engine"):
        _engine(asked)
    if asked.what in ("all", "oci"):
        _oci(asked)
    if asked.what in ("all", "pdf"):
        _pdf(asked)
    if asked.what in ("all", "redis"):
        _redis(asked)
    if asked.what in ("all", "optiplan"):
        optimizer.main(write=asked.write)
    if asked.what in ("all", "dashboard"):
        dashboard.main(write=asked.write)
    return 0


def _oci(asked: argparse.Namespace) -> None:
    report = Report("Benchmarks of the oci workload")
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    report.say(
        f"Made by `make bench ARGS='oci --write'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, full durability; client and database share the"
        " machine. Medians of ten, from the bytes of a request to rows in the store, HTTP left out."
    )
    with tempfile.TemporaryDirectory(prefix="kesin-bench-") as name:
        if "sqlite" in asked.stores:
            oci.run(report, "SQLite", lambda place: str(Path(name) / f"{place}.db"))
        if "postgres" in asked.stores:
            with PostgresServer(fsync=True) as server:
                oci.run(report, "PostgreSQL", server.create_database)
    oci.mapping(report)
    text = report.text()
    print(text)
    if asked.write:
        (ROOT / "docs" / "oci-benchmarks.md").write_text(text, "utf-8")


def _pdf(asked: argparse.Namespace) -> None:
    report = Report("Benchmarks of the pdf workload")
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    report.say(
        f"Made by `make bench ARGS='pdf --write'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, SQLite and a folder on the same disk, full"
        f" durability. The shipped invoice, one Chromium, {pdf.ROUNDS} interleaved rounds of"
        f" {pdf.A_ROUND} documents; the best round of each way counts."
    )
    pdf.run(report)
    text = report.text()
    print(text)
    if asked.write:
        (ROOT / "docs" / "pdf-benchmarks.md").write_text(text, "utf-8")


def _redis(asked: argparse.Namespace) -> None:
    report = Report("Benchmarks of the Redis store")
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    report.say(
        f"Made by `make bench ARGS='redis --write'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}; workers and Redis share the machine. No-op jobs, one"
        f" process, best of {redis.ROUNDS} interleaved rounds on one server. Kesin writes three"
        " events a job and its counters, and every run is replayed afterwards; RQ keeps no"
        " history, and here no results."
    )
    redis.run(report)
    text = report.text()
    print(text)
    if asked.write:
        (ROOT / "docs" / "redis-benchmarks.md").write_text(text, "utf-8")


def _engine(asked: argparse.Namespace) -> None:
    report = Report("Benchmarks")
    report.say(_preamble(asked))
    with tempfile.TemporaryDirectory(prefix="kesin-bench-") as name:
        folder = Path(name)
        if "sqlite" in asked.stores:
            _sqlite(report, asked, folder)
        if "postgres" in asked.stores:
            with PostgresServer(fsync=True) as server:
                _postgres(report, asked, server)
    text = report.text() + WHY
    print(text)
    if asked.write:
        (ROOT / "docs" / "benchmarks.md").write_text(text, "utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=",
        description=__doc__,
        epilog="`make load` measures `kesin serve` under 200 clients, and how fast it starts.",
    )
    parser.add_argument(
        "what",
        nargs="?",
        choices=["all", "engine", "oci", "pdf", "redis", "optiplan", "dashboard"],
        default="all",
    )
    parser.add_argument("--jobs", type=int, default=40_000, help="jobs a drain (default 40 000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, the best counts")
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgres"])
    parser.add_argument("--no-peers", action="store_true", help="only Kesin's own figures")
    parser.add_argument("--no-growth", action="store_true", help="leave the growing tables out")
    parser.add_argument("--huge", action="store_true", help="grow to 10⁷ rows as well")
    parser.add_argument("--write", action="store_true", help="write the page in docs")
    return parser.parse_args()


WHY = """
## Why some aims are missed

- **F1 / F0.** The distance is what the guard, the mandatory event and the counter cost, and that a
  claim returns the whole job where the floor returns an id, a token and the payload. On SQLite the
  largest part is reading jobs into Python, then the guard's check and its protection of events
  against forgery; on PostgreSQL it is the guard's trigger. Prepared statements would win some of it
  back, but need session state, which a pooler does not keep.
- **Huey, Procrastinate.** Both commit once or more for every job. Where flushing the disk is quick,
  as here, that is cheap; the slower the disk, the larger our lead.
- **PgQueuer with two processes.** Both are bound by the two cores that clients and server share,
  and its figure varies by half from run to run. It keeps no history, has no fence and no guard;
  finished jobs are deleted.
"""


def _preamble(asked: argparse.Namespace) -> str:
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    return (
        f"Made by `make bench ARGS='engine --write'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}; client and database"
        f" share the machine. No-op jobs, batches of {lanes.BATCH}, full durability, {asked.jobs}"
        f" jobs a drain, best of {asked.rounds} interleaved rounds. **F0** is the floor: the same"
        " tables without triggers, two hand-written fenced statements that write the events"
        f" themselves (SQL `{floors.fingerprint()}`). **F1** is the store's own generated"
        " statements, all triggers on, in a bare loop. **Engine** is a worker with a handler that"
        f" does nothing, in {lanes.LANES} threads in all: two in one process, one in each of two."
        " After every run: three events a job, counters equal to `count(*)`, replay"
        " empty."
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Speeds(dict[str, float]):
    """Completed jobs per second: the best of every contestant's rounds."""

    def race(self, store: str, rounds: int, contestants: dict[str, Callable[[int], float]]) -> None:
        """Let everybody run in every round, one after the other."""
        for number in range(rounds):
            for name, run in contestants.items():
                speed = run(number)
                _say(f"{store} {name}: {speed:,.0f} jobs/s")
                self[name] = max(self.get(name, 0.0), speed)


def _ours(
    asked: argparse.Namespace, processes: int, address: Address, speeds: Speeds
) -> dict[str, Callable[[int], float]]:
    def drain(way: str) -> Callable[[int], float]:
        def run(number: int) -> float:
            place = address(f"{way.lower()}_{processes}_{number}")
            drained = lanes.measure(way, place, asked.jobs, processes)
            filled = asked.jobs / drained.enqueue_seconds
            if processes == 1:
                speeds["enqueue, 1 process"] = max(speeds.get("enqueue, 1 process", 0.0), filled)
            return drained.per_second

        return run

    return {_named(way, processes): drain(way) for way in lanes.WAYS}


def _theirs(
    peer: str, jobs: int, processes: int, where: Callable[[str], list[str]]
) -> Callable[[int], float]:
    def run(number: int) -> float:
        place = where(f"{peer}_{processes}_{number}")
        line = peers_run.run(peer, jobs=jobs, processes=processes, where=place)
        return float(line["drain_per_second"])

    return run


def _named(way: str, processes: int) -> str:
    return f"{way}, {processes} process{'es' if processes > 1 else ''}"


def _floors(report: Report, store: str, speeds: Speeds) -> None:
    floor, bare, engine = (speeds[_named(way, 1)] for way in lanes.WAYS)
    report.aim(f"{store}: F1 / F0", bare / floor, least=0.70)
    report.aim(f"{store}: engine / F1", engine / bare, least=0.80)


def _table(report: Report, speeds: Speeds) -> None:
    report.table(("drain", "jobs/s"), [(name, f"{speed:,.0f}") for name, speed in speeds.items()])


def _grow(report: Report, store: str, asked: argparse.Namespace, address: Address) -> None:
    sizes = [10_000, 1_000_000, *([10_000_000] if asked.huge else [])]
    costs = []
    for size in sizes:
        costs.append(growth.measure(address(f"grow_{size}"), size))
        _say(f"{store} with {size:,} rows: {costs[-1]}")
    report.say(f"### {store}: cost as the table grows (milliseconds, median)")
    report.table(
        ("finished jobs beside", "claim 500", "finish 500", "stats", "page of 100"),
        [
            (
                f"{c.rows:,}",
                f"{c.claim_ms:.1f}",
                f"{c.finish_ms:.1f}",
                f"{c.stats_ms:.2f}",
                f"{c.page_ms:.2f}",
            )
            for c in costs
        ],
    )
    report.aim(f"{store}: claim growth", costs[-1].claim_ms / costs[0].claim_ms, most=1.5)
    report.aim(f"{store}: stats growth", costs[-1].stats_ms / costs[0].stats_ms, most=1.5)


def _sqlite(report: Report, asked: argparse.Namespace, folder: Path) -> None:
    def address(name: str) -> str:
        return str(folder / f"{name}.db")

    def home(name: str) -> list[str]:
        (folder / name).mkdir()
        return ["--dir", str(folder / name)]

    report.say("## SQLite (jobs per second)")
    speeds = Speeds()
    huey = _named(f"Huey {version('huey')}", 1) if not asked.no_peers else ""
    contestants = _ours(asked, 1, address, speeds)
    if huey:
        contestants[huey] = _theirs("huey_sqlite", 5_000, 1, home)
    speeds.race("SQLite", asked.rounds, contestants)
    speeds.race("SQLite", asked.rounds, _ours(asked, 2, address, speeds))
    _floors(report, "SQLite", speeds)
    if huey:
        ratio = speeds[_named("engine", 1)] / speeds[huey]
        report.aim("SQLite: engine / Huey", ratio, least=10)
    _table(report, speeds)
    if not asked.no_growth:
        _grow(report, "SQLite", asked, address)


class Peer(NamedTuple):
    """Somebody to be measured beside, and how many times faster is aimed at."""

    module: str
    name: str
    jobs: int
    least: float

    def shown(self, processes: int) -> str:
        """Its line in the table."""
        return _named(f"{self.name} {version(self.module)}", processes)


PEERS = (
    Peer("pgqueuer", "PgQueuer", 10_000, 1.4),
    Peer("procrastinate", "Procrastinate", 1_500, 30),
)


def _postgres(report: Report, asked: argparse.Namespace, server: PostgresServer) -> None:
    def url(name: str) -> list[str]:
        return ["--url", server.create_database(name)]

    report.say("## PostgreSQL (jobs per second)")
    speeds = Speeds()
    peers = () if asked.no_peers else PEERS
    for processes in (1, 2):
        contestants = _ours(asked, processes, server.create_database, speeds)
        for peer in peers:
            run = _theirs(peer.module, peer.jobs, processes, url)
            contestants[peer.shown(processes)] = run
        speeds.race("PostgreSQL", asked.rounds, contestants)
    _floors(report, "PostgreSQL", speeds)
    for processes, peer in product((1, 2), peers):
        ratio = speeds[_named("engine", processes)] / speeds[peer.shown(processes)]
        what = _named(f"PostgreSQL: engine / {peer.name}", processes)
        report.aim(what, ratio, least=peer.least)
    _table(report, speeds)
    if not asked.no_growth:
        _grow(report, "PostgreSQL", asked, server.create_database)


if __name__ == "__main__":
    sys.exit(main())
