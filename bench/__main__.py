"""``make bench``: Kesin and its peers, side by side, in one run on one machine.

Figures depend on the machine; ratios hardly do. Rounds are interleaved, so that a slow minute of
the machine falls on everybody; each page says which round counts.
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
from statistics import median
from typing import NamedTuple

from bench import (
    costs,
    dashboard,
    features,
    floors,
    growth,
    instructions,
    lanes,
    oci,
    optimizer,
    pdf,
    peers_run,
    pickup,
    redis,
)
from bench.report import Report
from tests.servers import PostgresServer

ROOT = Path(__file__).parent.parent
ENQUEUE = "enqueue, 1 process"
BENCHES = (*("engine", "growth", "oci", "pdf", "redis", "optiplan", "dashboard", "pickup", "features"), "instructions")
ALONE = ("growth", "instructions")  # a part of growth is in engine; instructions needs Valgrind
STORES = ["sqlite", "postgres"]  # of concepts Redis is measured too
ROUNDS = 7
Address = Callable[[str], str]  # the name of a database to be → where it is


def main() -> int:
    """Measure, print, and optionally write the report."""
    asked = _arguments()
    given, asked.rounds = asked.rounds, asked.rounds or ROUNDS
    stores = [*STORES, "redis"] if asked.stores == STORES else asked.stores
    benches: dict[str, Callable[[], object]] = {
        "engine": lambda: _engine(asked),
        "growth": lambda: growth.main(stores=asked.stores, huge=asked.huge, write=asked.write),
        "oci": lambda: _oci(asked),
        "pdf": lambda: _pdf(asked),
        "redis": lambda: _redis(asked),
        "optiplan": lambda: optimizer.main(write=asked.write, published_in=asked.published),
        "dashboard": lambda: dashboard.main(write=asked.write),
        "pickup": lambda: pickup.main(rounds=given or pickup.ROUNDS, write=asked.write),
        "features": lambda: features.main(
            stores=stores,
            rounds=given or features.ROUNDS,
            peers=not asked.no_peers,
            against=asked.against,
            write=asked.write,
        ),
        "instructions": lambda: instructions.main(against=asked.against, write=asked.write),
    }
    several = [name for name in BENCHES if name not in ALONE]
    for name in several if asked.what == "all" else [asked.what]:
        benches[name]()
    return 0


def _oci(asked: argparse.Namespace) -> None:
    report = Report("oci benchmarks")
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    report.say(
        f"Measured with `make bench ARGS='oci --write'` on {when}: {os.cpu_count()} cores, Python"
        f" {platform.python_version()}, full durability; the client and the database share the"
        " machine. Figures are medians of ten runs, measured from the bytes of a request to rows"
        " in the store, without HTTP."
    )
    with tempfile.TemporaryDirectory(prefix="kesin-bench-") as name:
        if "sqlite" in asked.stores:
            sqlite = lambda place: str(Path(name) / f"{place}.db")  # noqa: E731
            oci.run(report, "SQLite", sqlite)
            oci.identifiers(report, sqlite)
        if "postgres" in asked.stores:
            with PostgresServer(fsync=True) as server:
                oci.run(report, "PostgreSQL", server.create_database)
    oci.mapping(report)
    text = report.text()
    print(text)
    if asked.write:
        (ROOT / "docs" / "contributing" / "oci-benchmarks.md").write_text(text, "utf-8")


def _pdf(asked: argparse.Namespace) -> None:
    report = Report("pdf benchmarks")
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    browser = pdf.find_chromium()
    report.say(
        f"Measured with `make bench ARGS='pdf --write'` on {when}: {os.cpu_count()} cores, Python"
        f" {platform.python_version()}, SQLite and a folder on the same disk, full durability. The"
        f" shipped invoice template, one {browser and browser.name}, {pdf.ROUNDS} interleaved"
        f" rounds of {pdf.A_ROUND} documents; the best round of each method counts."
    )
    pdf.run(report, asked.rows or pdf.ROWS)
    text = report.text()
    print(text)
    if asked.write and not asked.rows:
        (ROOT / "docs" / "contributing" / "pdf-benchmarks.md").write_text(text, "utf-8")


def _redis(asked: argparse.Namespace) -> None:
    report = Report("Benchmarks of the Redis store")
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    report.say(
        f"Measured with `make bench ARGS='redis --write'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}; the workers and Redis share the machine. Each drain"
        f" runs no-op jobs in one process; figures are the best of {redis.ROUNDS} interleaved"
        " rounds on a single server. Kesin writes three events and updates its counters for each"
        " job, and every run is replayed afterwards. RQ keeps no history and, in this test,"
        " stores no results."
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
    parser.add_argument("what", nargs="?", choices=["all", *BENCHES], default="all")
    parser.add_argument("--jobs", type=int, default=40_000, help="jobs a drain (default 40 000)")
    parser.add_argument(
        "--rounds",
        type=int,
        help=f"rounds (default: engine {ROUNDS}, the median counts; pickup {pickup.ROUNDS};"
        f" features {features.ROUNDS})",
    )
    parser.add_argument("--rows", nargs="+", choices=pdf.ROWS, help="pdf: only these rows")
    parser.add_argument("--stores", nargs="+", default=STORES)
    parser.add_argument("--no-peers", action="store_true", help="only Kesin's own figures")
    parser.add_argument("--no-growth", action="store_true", help="leave the growing tables out")
    parser.add_argument("--huge", action="store_true", help="grow to 10⁷ rows as well")
    parser.add_argument(
        "--against",
        default=features.BEFORE,
        metavar="REVISION",
        help=f"features, instructions: the plain queue beside that of this revision (default {features.BEFORE})",
    )
    parser.add_argument("--published", type=Path, metavar="FOLDER", help="optiplan: see bench/published.py")
    parser.add_argument("--write", action="store_true", help="write the page in docs")
    return parser.parse_args()


WHY = """
## Why some targets are missed

- **Huey.** Huey commits once per job, which is cheap when disk flushes are as fast as they are on
  this machine. Not even the floor reaches ten times Huey's speed, as *F0 / Huey* shows. On a slower
  disk Kesin's lead grows, because Kesin commits only twice for every 500 jobs.
- **Procrastinate, tuned, two processes.** Procrastinate also commits once per job. The floor, which
  checks and counts nothing, lands just above the target; the cost of the guard and the worker puts
  the engine below it.
- **Three quarters of the floor on SQLite.** SQLite runs triggers row by row. The most expensive one
  is the guard on events: it looks up the job and the event before each insert, so that events
  cannot be added or replaced from a SQL prompt. Next come two costs: the check that the move is
  declared, and the worker's own Python code.
- **Twice PgQueuer's speed.** F0 / PgQueuer shows how much headroom the floor leaves for the
  guard and the worker. The floor uses one connection per process; with one process, the engine uses
  two.
- **PgQueuer's WAL.** The floor's ratio is nearly the same: the floor updates each job twice and
  writes three events with their index entries. The engine also takes locks, in id order, so that
  moves of many jobs never deadlock.
"""


def _preamble(asked: argparse.Namespace) -> str:
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    return (
        f"Measured with `make bench ARGS='engine --write'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}; the client and the"
        f" database share the machine. Each drain runs {asked.jobs:,} no-op jobs in batches of"
        f" {lanes.BATCH} with full durability. Figures are medians of {asked.rounds} rounds in"
        " which every queue runs; ratios are computed within each round. **F0** is the floor: the"
        " same tables without triggers, and two hand-written fenced statements that write the"
        f" events themselves (SQL `{floors.fingerprint()}`). **F1** runs the store's own generated"
        " statements in a bare loop with all triggers on. The F1 / F0 ratio is the median over"
        " pairs of batches, one F1 and one F0, run back to back. **Engine** is a worker whose"
        f" handler does nothing. On PostgreSQL it uses {lanes.LANES} threads in total, either both"
        " in one process or one in each of two processes. SQLite allows only one writer, so there"
        " it uses one thread per process. Each peer runs with its fastest durable settings (see"
        " `bench/peers`), except in the rows marked *with defaults*. Every run is verified: each"
        " job has three events, the counters equal `count(*)`, and the replay is exact. Costs are"
        " per job and cover both enqueueing and draining. On PostgreSQL, CPU time covers all"
        " server processes, and the bytes written are WAL. On SQLite, CPU time covers the calling"
        " processes, including Python, and the bytes are everything those processes write to the"
        " WAL and from there to the database file. Disk space covers all tables and indexes after"
        " the last job. Kesin keeps jobs and events until they are pruned, PgQueuer keeps its"
        " log, and Huey keeps nothing."
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Raced(NamedTuple):
    """A drain in one round."""

    per_second: float
    cost: costs.Cost  # of a job, from its enqueue on


Contestant = Callable[[int], Raced]


class Speeds(dict[str, list[float]]):
    """Completed jobs per second, round by round.

    A machine is quick and slow by turns: so those are compared who ran in the same round.
    """

    def __init__(self) -> None:
        super().__init__()
        self.costs: dict[str, list[costs.Cost]] = {}

    def race(self, store: str, rounds: int, contestants: dict[str, Contestant]) -> None:
        """Let everybody run in every round, one after the other, there and back."""
        order = list(contestants)
        for number in range(rounds):
            for name in order:
                raced = contestants[name](number)
                self.setdefault(name, []).append(raced.per_second)
                self.costs.setdefault(name, []).append(raced.cost)
                _say(f"{store} {name}: {self[name][-1]:,.0f} jobs/s")
            order.reverse()

    def ratio(self, one: str, other: str) -> float:
        """How many times faster one is than the other: the median of their rounds."""
        return median(mine / its for mine, its in zip(self[one], self[other], strict=True))


def _ours(asked: argparse.Namespace, processes: int, address: Address, speeds: Speeds) -> dict[str, Contestant]:
    def drain(way: str) -> Contestant:
        def run(number: int) -> Raced:
            place = address(f"{way.lower()}_{processes}_{number}")
            drained = lanes.measure(way, place, asked.jobs, processes)
            speeds.setdefault(ENQUEUE, []).append(asked.jobs / drained.enqueue_seconds)
            return Raced(drained.per_second, drained.cost)

        return run

    return {_named(way, processes): drain(way) for way in lanes.WAYS}


def _theirs(peer: str, jobs: int, processes: int, where: Callable[[str], list[str]]) -> Contestant:
    def run(number: int) -> Raced:
        place = where(f"{peer}_{processes}_{number}")
        line = peers_run.run(peer, jobs=jobs, processes=processes, where=place)
        cost = costs.Cost(*(float(line[name]) for name in costs.Cost._fields))
        return Raced(float(line["drain_per_second"]), cost)

    return run


def _named(way: str, processes: int) -> str:
    return f"{way}, {processes} process{'es' if processes > 1 else ''}"


def _floors(report: Report, store: str, asked: argparse.Namespace, address: Address, speeds: Speeds) -> None:
    ratio = lanes.in_step(address("step_f0"), address("step_f1"), asked.jobs)
    report.aim(f"{store}: F1 / F0, median of pairs", ratio, least=0.70)
    ratio = speeds.ratio(_named("engine", 1), _named("F1", 1))
    report.aim(f"{store}: engine / F1", ratio, least=0.80)
    for processes in (1, 2):
        ratio = speeds.ratio(_named("engine", processes), _named("F0", processes))
        report.aim(_named(f"{store}: engine / F0", processes), ratio, least=0.75)


def _table(report: Report, speeds: Speeds, written: str) -> None:
    names = [*(name for name in speeds if name != ENQUEUE), ENQUEUE]
    rows = []
    for name in names:
        spent = costs.middle(speeds.costs[name]) if name in speeds.costs else None
        figures = (spent.cpu * 1e6, spent.written, spent.disk) if spent else ()
        cells = [f"{figure:,.0f}" for figure in (median(speeds[name]), *figures)]
        rows.append((name, *cells, *[""] * (4 - len(cells))))
    report.table(("drain", "jobs/s", "CPU µs", written, "bytes on disk"), rows)


def _grow(report: Report, store: str, asked: argparse.Namespace, address: Address) -> None:
    sizes = [10_000, 1_000_000, *([10_000_000] if asked.huge else [])]
    growth.part(report, store, sizes, address)


def _sqlite(report: Report, asked: argparse.Namespace, folder: Path) -> None:
    def address(name: str) -> str:
        return str(folder / f"{name}.db")

    def home(name: str) -> list[str]:
        (folder / name).mkdir()
        return ["--dir", str(folder / name)]

    report.say("## SQLite")
    speeds = Speeds()
    huey = _named(f"Huey {version('huey')}", 1) if not asked.no_peers else ""
    contestants = _ours(asked, 1, address, speeds)
    if huey:
        contestants[huey] = _theirs("huey_sqlite", 5_000, 1, home)
    speeds.race("SQLite", asked.rounds, contestants)
    speeds.race("SQLite", asked.rounds, _ours(asked, 2, address, speeds))
    _floors(report, "SQLite", asked, address, speeds)
    if huey:
        report.aim("SQLite: engine / Huey", speeds.ratio(_named("engine", 1), huey), least=10)
        floor = speeds.ratio(_named("F0", 1), huey)
        report.aim("SQLite: F0 / Huey, for comparison", floor)
    _table(report, speeds, "bytes written")
    if not asked.no_growth:
        _grow(report, "SQLite", asked, address)


class Peer(NamedTuple):
    """Somebody to be measured beside, and how many times faster is aimed at."""

    module: str
    name: str
    jobs: int
    least: float
    how: str = ""
    options: tuple[str, ...] = ()

    def shown(self, processes: int) -> str:
        """Its line in the table."""
        return _named(f"{self.name} {version(self.module)}{self.how}", processes)


PEERS = (
    Peer("pgqueuer", "PgQueuer", 10_000, 2),
    Peer("procrastinate", "Procrastinate", 1_500, 30),
    Peer("procrastinate", "Procrastinate", 1_500, 30, " with defaults", ("--as-it-comes",)),
)


def _postgres(report: Report, asked: argparse.Namespace, server: PostgresServer) -> None:
    def url(name: str) -> list[str]:
        return ["--url", server.create_database(name)]

    def run(peer: Peer, processes: int) -> Contestant:
        tuned = "_".join(peer.options).replace("-", "")
        return _theirs(peer.module, peer.jobs, processes, lambda name: [*url(f"{name}{tuned}"), *peer.options])

    report.say("## PostgreSQL")
    speeds = Speeds()
    peers = () if asked.no_peers else PEERS
    for processes in (1, 2):
        contestants = _ours(asked, processes, server.create_database, speeds)
        contestants |= {peer.shown(processes): run(peer, processes) for peer in peers}
        speeds.race("PostgreSQL", asked.rounds, contestants)
    _floors(report, "PostgreSQL", asked, server.create_database, speeds)
    for processes, peer in product((1, 2), peers):
        ratio = speeds.ratio(_named("engine", processes), peer.shown(processes))
        what = _named(f"PostgreSQL: engine / {peer.name}{peer.how}", processes)
        report.aim(what, ratio, least=peer.least)
        if peer.name == "PgQueuer":
            names = (_named("engine", processes), _named("F0", processes), peer.shown(processes))
            ours, floor, its = (costs.middle(speeds.costs[name]).written for name in names)
            what = _named("PostgreSQL: WAL bytes / PgQueuer", processes)
            report.aim(what, ours / its, most=1)
            what = _named("PostgreSQL: WAL bytes of F0 / PgQueuer, for comparison", processes)
            report.aim(what, floor / its)
        if not peer.how:
            floor = speeds.ratio(_named("F0", processes), peer.shown(processes))
            what = _named(f"PostgreSQL: F0 / {peer.name}, for comparison", processes)
            report.aim(what, floor)
    _table(report, speeds, "WAL bytes")
    if not asked.no_growth:
        _grow(report, "PostgreSQL", asked, server.create_database)


if __name__ == "__main__":
    sys.exit(main())
