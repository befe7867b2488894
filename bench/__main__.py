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
from pathlib import Path

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
    parser.add_argument("--rounds", type=int, default=3, help="rounds, the best counts")
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


def _best(
    store: str, asked: argparse.Namespace, processes: int, address
) -> dict[str, lanes.Drained]:  # type: ignore[no-untyped-def]
    """The best round of each way, rounds interleaved."""
    best: dict[str, lanes.Drained] = {}
    for number in range(asked.rounds):
        for way in lanes.WAYS:
            place = address(f"{way.lower()}_{processes}_{number}")
            run = lanes.measure(way, place, asked.jobs, processes)
            _say(f"{store} {way} × {processes}: {run.per_second:,.0f} jobs/s")
            if way not in best or run.per_second > best[way].per_second:
                best[way] = run
    return best


def _drains(
    report: Report, store: str, asked: argparse.Namespace, processes: int, address: Address
) -> tuple[list[tuple[str, ...]], float]:
    best = _best(store, asked, processes, address)
    floor, bare, engine = (best[way].per_second for way in lanes.WAYS)
    enqueue = asked.jobs / min(one.enqueue_seconds for one in best.values())
    rows: list[tuple[str, ...]] = [
        (f"{way}, {processes} process{'es' if processes > 1 else ''}", f"{one.per_second:,.0f}")
        for way, one in best.items()
    ]
    if processes == 1:
        rows.append(("enqueue, 1 process", f"{enqueue:,.0f}"))
        report.aim(f"{store}: F1 / F0", bare / floor, least=0.70)
        report.aim(f"{store}: engine / F1", engine / bare, least=0.80)
    return rows, engine


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

    report.say("## SQLite (jobs per second)")
    rows, engine = _drains(report, "SQLite", asked, 1, address)
    more, _ = _drains(report, "SQLite", asked, 2, address)
    rows += more
    if not asked.no_peers:
        best = None
        for number in range(asked.rounds):
            home = folder / f"huey{number}"
            home.mkdir()
            line = peers_run.run("huey_sqlite", jobs=5_000, processes=1, where=["--dir", str(home)])
            _say(f"Huey: {line['drain_per_second']:,.0f} jobs/s")
            if best is None or line["drain_per_second"] > best["drain_per_second"]:
                best = line
        assert best is not None
        rows.append((f"Huey {best['version']}, 1 process", f"{best['drain_per_second']:,.0f}"))
        report.aim("SQLite: engine / Huey", engine / best["drain_per_second"], least=10)
    report.table(("drain", "jobs/s"), rows)
    if not asked.no_growth:
        _grow(report, "SQLite", asked, address)


def _postgres(report: Report, asked: argparse.Namespace, server: PostgresServer) -> None:
    report.say("## PostgreSQL (jobs per second)")
    rows: list[tuple[str, ...]] = []
    for processes in (1, 2):
        part, engine = _drains(report, "PostgreSQL", asked, processes, server.create_database)
        rows += part
        if asked.no_peers:
            continue
        for peer, name, jobs, least in (
            ("pgqueuer", "PgQueuer", 10_000, 1.4),
            ("procrastinate", "Procrastinate", 1_500, 30),
        ):
            speeds = []
            for number in range(asked.rounds):
                url = server.create_database(f"{peer}_{processes}_{number}")
                line = peers_run.run(peer, jobs=jobs, processes=processes, where=["--url", url])
                _say(f"{name} × {processes}: {line['drain_per_second']:,.0f} jobs/s")
                speeds.append(line["drain_per_second"])
            count = f"{processes} process{'es' if processes > 1 else ''}"
            rows.append((f"{name} {line['version']}, {count}", f"{max(speeds):,.0f}"))
            report.aim(f"PostgreSQL: engine / {name}, {count}", engine / max(speeds), least=least)
    report.table(("drain", "jobs/s"), rows)
    if not asked.no_growth:
        _grow(report, "PostgreSQL", asked, server.create_database)


if __name__ == "__main__":
    sys.exit(main())
