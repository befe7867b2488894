"""What each call costs as the table grows: 10⁴ → 10⁶ finished jobs, 10⁷ with a flag.

Processor time decides, of this process and of the database's sessions: wall time is what a busy
machine leaves over. The sizes take turns, so that a slow minute falls on all of them.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import kesin
from bench import filling
from bench.lanes import BATCH
from bench.report import Report
from kesin.engine.queue import apply_changes
from kesin.engine.sweeper import Sweeper
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.lifecycle.model import Change
from kesin.lifecycle.vocabulary import STAGES
from kesin.store.errors import StoreUnreachable
from kesin.store.postgres.store import PostgresStore
from kesin.store.records import Filter
from tests.servers import PostgresServer

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "contributing" / "growth-benchmarks.md"
LAST = ROOT / "build" / "growth.json"  # what was found, store by store
REPEATS = 15
READY, FAILED = 10_000, 1_000  # enough to claim from; enough to be chosen from
PRUNED = 250  # in a call: the smallest table has as many for each round
SMALL, LARGE, HUGE = 10_000, 1_000_000, 10_000_000
MOST = 1.5
TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
CALLS = {
    "claim 500": "claim",
    "finish 500": "finish",
    "stats": "stats",
    "list: 100 ready jobs": "list_ready",
    "list: the newest 100 done jobs": "list_done",
    "list: 100 done jobs from the middle": "list_middle",
    "search: one job": "search_one",
    "search: a prefix all jobs share": "search_all",
    "sweep: nothing due": "sweep",
    "prune 250": "prune",
    "prune: none old enough": "prune_none",
    "preview: the whole queue": "preview_all",
    "preview: 1,000 jobs that match": "preview_some",
}


class Cost(NamedTuple):
    """Milliseconds of one call."""

    cpu: float
    wall: float


class Measured(NamedTuple):
    """What each call took at one size, round by round."""

    rows: int
    costs: dict[str, list[Cost]]


@dataclass(slots=True)
class Grown:
    """A queue of one size, and what its calls took."""

    rows: int
    queue: kesin.Queue
    costs: dict[str, list[Cost]] = field(default_factory=dict)
    claimed: list[kesin.Job] = field(default_factory=list)
    middle: str = ""
    now: int | None = None

    def round(self) -> None:
        """Make every call once."""
        self.now = self._when_none_is_old_enough()
        for name, how in CALLS.items():
            with self._measured(name):
                getattr(self, how)()

    @contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        sessions = self._sessions()
        cpu, wall = _cpu_s(sessions), time.perf_counter()
        try:
            yield
        except StoreUnreachable:  # it took longer than a call may
            _say(f"{name}, {self.rows:,} jobs: given up")
        wall, cpu = time.perf_counter() - wall, _cpu_s(sessions) - cpu
        cpu = cpu if cpu > 0 else wall  # the session is gone, with its time
        self.costs.setdefault(name, []).append(Cost(1_000 * cpu, 1_000 * wall))

    def _sessions(self) -> list[int]:
        """The processes of the server that work for us."""
        if not isinstance(self.queue.store, PostgresStore):
            return []
        rows = self.queue.store._rows(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'",
            {},
        )
        return [row[0] for row in rows]

    def _when_none_is_old_enough(self) -> int:
        oldest = self.queue.jobs(Filter(states=("done",), oldest_first=True), limit=1).jobs[0]
        return oldest.created_at + 30 * DAY_S * SECOND_US - SECOND_US

    def claim(self) -> None:
        """Claim a batch."""
        self.claimed = self.queue.claim("w", limit=BATCH)

    def finish(self) -> None:
        """Finish it."""
        changes = [Change(job.id, job.claim_seq) for job in self.claimed]
        outcomes = apply_changes(self.queue, "complete", changes, actor="w")
        assert len(outcomes) == BATCH
        assert all(outcome.result == "moved" for outcome in outcomes)

    def stats(self) -> None:
        """Count by state and tenant."""
        assert self.queue.stats().states["failed"] == FAILED

    def list_ready(self) -> None:
        """A page of the jobs that wait."""
        assert len(self.queue.jobs(Filter(states=("ready",))).jobs) == 100

    def list_done(self) -> None:
        """The newest page of the jobs that are many."""
        assert len(self.queue.jobs(Filter(states=("done",))).jobs) == 100

    def list_middle(self) -> None:
        """A page far down."""
        page = self.queue.jobs(Filter(states=("done",)), cursor=self.middle)
        assert len(page.jobs) == 100

    def search_one(self) -> None:
        """By a field that one job has."""
        assert len(self.queue.jobs(Filter(search=filling.order(self.rows - 7))).jobs) == 1

    def search_all(self) -> None:
        """By what is too common for the index."""
        assert len(self.queue.jobs(Filter(search="a")).jobs) == 100

    def sweep(self) -> None:
        """A pass of the sweeper that finds nothing to do, without pruning."""
        Sweeper([self.queue]).sweep([stage for stage in STAGES if stage != "prune"])

    def prune(self) -> None:
        """Delete the oldest jobs with their histories."""
        [move] = (move for move in self.queue.lifecycle.scheduled_moves if move.stage == "prune")
        assert self.queue.sweep(move, limit=PRUNED) == PRUNED

    def prune_none(self) -> None:
        """Look for jobs to delete where the oldest is a second too young."""
        [move] = (move for move in self.queue.lifecycle.scheduled_moves if move.stage == "prune")
        assert self.queue.store.sweep(self.queue.name, move, limit=PRUNED, now=self.now) == 0

    def preview_all(self) -> None:
        """What an action would do to every job of the queue."""
        foreseen = self.queue.preview("requeue", Filter(), None, frozenset())
        assert foreseen["failed", ""] == FAILED

    def preview_some(self) -> None:
        """What it would do to those that match, where each must be looked at."""
        where = Filter(states=("failed",), moved_before=self.queue.now())
        assert self.queue.preview("requeue", where, None, frozenset()) == {("failed", ""): FAILED}


def _cpu_s(sessions: Sequence[int]) -> float:
    """Processor time of this process and of those."""
    spent = 0
    for pid in sessions:
        with suppress(FileNotFoundError):
            spent += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
    return time.process_time() + spent / 1e9


def opened(address: str, rows: int) -> Grown:
    """The filled queue, checked, with jobs to work on beside the finished ones."""
    queue = filling.open_grown(address)
    filling.check(queue, rows)
    middle = queue.jobs(Filter(search=filling.order(rows // 2))).jobs[0].id
    for first in range(0, FAILED + READY, 1_000):
        queue.enqueue_many([kesin.NewJob({"order": f"B{first + n}"}) for n in range(1_000)])
        if first < FAILED:
            broken = {"error_code": "BROKEN", "error_category": "PERMANENT", "error_message": "it is"}
            claimed = queue.claim("w", limit=FAILED)
            changes = [Change(job.id, job.claim_seq, **broken) for job in claimed]
            apply_changes(queue, "fail", changes, actor="w")
    return Grown(rows, queue, middle=middle)


def measure(addresses: dict[int, str]) -> list[Measured]:
    """Make every call at each size in turn."""
    grown = [opened(address, rows) for rows, address in addresses.items()]
    for _ in range(REPEATS):
        for one in grown:
            one.round()
    for one in grown:
        one.queue.store.close()
    return [Measured(one.rows, one.costs) for one in grown]


def run(store: str, sizes: Sequence[int]) -> list[Measured]:
    """Fill databases of all sizes, then measure them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kesin-grown-")))
        if store == "postgres":
            server = stack.enter_context(PostgresServer(fsync=True, settings={"jit": "off"}))
            places = {rows: server.create_database(f"grown_{rows}") for rows in sizes}
        else:
            places = {rows: str(folder / f"{rows}.db") for rows in sizes}
        _fill_all(places, folder)
        return measure_apart(places)


def measure_apart(places: dict[int, str]) -> list[Measured]:
    """Measure in a process of its own, whose time is the calls' alone."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(measure, places).result()


def _fill_all(addresses: dict[int, str], folder: Path) -> None:
    a_job = None
    for rows, address in addresses.items():
        started = time.perf_counter()
        filling.fill(address, rows, folder, a_job)
        a_job = filling.size_of(address) / rows
        seconds = time.perf_counter() - started
        _say(f"{rows:,} jobs, {a_job:.0f} bytes each: {seconds:.0f} s")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(*, stores: Sequence[str], huge: bool, write: bool) -> None:
    """Measure, print, and optionally write the page: of these stores, and others as last run."""
    sizes = [SMALL, LARGE, *([HUGE] if huge else [])]
    for store in stores:
        remember(store, os.getloadavg()[0], run(store, sizes))
    text = page()
    print(text)
    if write:
        PAGE.write_text(text, "utf-8")


def remember(store: str, load: float, measured: list[Measured]) -> None:
    """Keep what was found of a store: each takes so long that they may be run apart."""
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    LAST.parent.mkdir(exist_ok=True)
    last = json.loads(LAST.read_text("utf-8")) if LAST.exists() else {}
    LAST.write_text(json.dumps({**last, store: [when, load, measured]}), "utf-8")


def page() -> str:
    """The page, from the last run of each store."""
    last = json.loads(LAST.read_text("utf-8"))
    report = Report("Growth benchmarks")
    huge = all(measured[-1][0] == HUGE for *_, measured in last.values())
    days: dict[str, list[str]] = {}
    for store, (when, load, _) in sorted(last.items()):
        days.setdefault(when, []).append(f"{TITLES[store]}, load average {load:.0f} before the run")
    runs = " and ".join(f"{when} ({'; '.join(each)})" for when, each in days.items())
    report.say(
        f"Measured with `make bench ARGS='growth{' --huge' if huge else ''} --write'`, or with"
        f" `--stores` to run one store at a time, on {runs}: {os.cpu_count()} cores, Python"
        f" {platform.python_version()}, SQLite {sqlite3.sqlite_version}, PostgreSQL with `jit ="
        " off` and otherwise default settings, full durability; the client and the database share"
        f" the machine with other work. Figures are medians of {REPEATS} rounds, each covering"
        " every size. **CPU** is the CPU time of the client and its server sessions; the targets"
        " apply to its ratio. *Wall* is elapsed time, for comparison."
    )
    report.say(FILLED)
    for store, (*_, measured) in sorted(last.items(), reverse=True):
        _show(report, TITLES[store], [Measured(*one) for one in measured])
    return report.text() + WHY


def part(report: Report, store: str, sizes: Sequence[int], address: Callable[[str], str]) -> None:
    """Add what a page of benchmarks of the engine says about growing."""
    places = {rows: address(f"grow_{rows}") for rows in sizes}
    _fill_all(places, Path(tempfile.gettempdir()))
    grown = measure(places)
    report.say(f"### {store}: cost as the table grows (CPU milliseconds, median)")
    names = [name for name in CALLS if name.startswith(("claim", "finish", "stats", "list"))]
    costs = {one.rows: [_median(one, name).cpu for name in names] for one in grown}
    report.table(
        ("finished jobs in the table", *names),
        [(f"{rows:,}", *(f"{ms:.2f}" for ms in each)) for rows, each in costs.items()],
    )
    first, last = costs[sizes[0]], costs[sizes[-1]]
    for name in ("claim 500", "stats"):
        number = names.index(name)
        report.aim(f"{store}: {name.split()[0]} growth", last[number] / first[number], most=MOST)


def _median(one: Measured, name: str) -> Cost:
    cpu, wall = zip(*one.costs[name], strict=True)
    return Cost(statistics.median(cpu), statistics.median(wall))


def _show(report: Report, store: str, grown: list[Measured]) -> None:
    report.say(f"## {store} (milliseconds, median)")
    head = [f"CPU, {one.rows:,}" for one in grown] + [f"wall, {one.rows:,}" for one in grown]
    rows = []
    for name in CALLS:
        cpu, wall = zip(*(_median(one, name) for one in grown), strict=True)
        ratio = cpu[-1] / cpu[0]
        rows.append((name, *(f"{ms:.2f}" for ms in (*cpu, *wall)), f"{ratio:.2f}"))
        what = f"{store}: {name}, {grown[-1].rows:,} / {grown[0].rows:,}"
        report.aim(what, ratio, most=MOST)
    report.table(("call", *head, "CPU, largest / smallest"), rows)


FILLED = """\
One job ran through the engine. Its rows (job, body, three events, search term) were then copied
inside the database, with new ids and order numbers and with times spread over 60 days. Half of the
copies are more than 30 days old and can be pruned (`bench/filling.py`). The counters were increased
to match. Before the measurement, the counters were checked against the requested number, and 200
jobs from across the table were looked up by order number and replayed from their events."""

WHY = """
## What this bench found

- **prune: none old enough** used to read jobs created up to a day after the cutoff, because the
  clock used for ids may run up to a day ahead of the database's clock. A prune now stops at the
  cutoff, and a job whose id is ahead of the database's clock is pruned that much later.
- **preview: the whole queue** used to read every job. For states from which the previewed
  action has no move, it now uses the counters.
- **search: a prefix all jobs share** was cancelled after 60 s on PostgreSQL in the first run with
  ten million jobs. If its statistics contain only one state, PostgreSQL may choose a plan that
  scans all jobs by primary key to find the few in a rare state; with a million jobs, the costs of
  the two plans differed by only 0.2%. The plan of the cancelled call was not recorded. The state is
  now always read through its index, and the call takes the time shown in the table above.
"""
