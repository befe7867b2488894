"""What each concept of the engine costs: where it is used, where it is not, and beside its peers.

The machine is quick and slow by turns, so whatever is compared runs in turns, and the medians of
ratios count. Processor time says the same with less noise where others share the processors.
"""

from __future__ import annotations

import json
import os
import platform
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from math import sqrt
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import NamedTuple

import psycopg
import redis

from bench import concepts, drained, peers_run
from bench.beside import own_environment, say
from bench.concepts import PLAIN, Concept
from bench.drained import Run, Spent
from bench.report import Report
from kesin.foundation.logs import set_up_logs
from tests.redis_server import RedisServer
from tests.servers import PostgresServer

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "contributing" / "feature-benchmarks.md"
BEFORE = "e6d3e61"  # the last commit before the concepts
JOBS = 3_000  # a round
ROUNDS = 5
SESSIONS, TURNS, TURN_JOBS = 3, 40, 600  # against another revision: quick turns, fresh processes
RESAMPLES = 400
PEER_ROUNDS = 3
PEER_JOBS = {"pgqueuer": 3_000, "procrastinate": 200}
DRAIN_AT_LEAST = 0.85  # of the plain queue, for what takes part in every claim
AT_MOST_PERCENT = 2.0  # more than before, for a queue that uses nothing of it

Address = Callable[[], str]  # of a new, empty store
Go = Callable[[int], Run]


def main(*, stores: list[str], rounds: int, peers: bool, against: str, write: bool) -> None:
    """Measure, print, and write docs/contributing/feature-benchmarks.md if asked."""
    set_up_logs(level="error")
    report = Report("Feature benchmarks")
    report.say(_preamble(rounds))
    with ExitStack() as stack:
        places = _places(stack, stores)
        for store, address in places.items():
            _used(report, store, address, rounds)
        _unused(report, places, against)
        if peers and "PostgreSQL" in places:
            _beside_peers(report, places["PostgreSQL"])
    text = report.text()
    print(text)
    if write:
        PAGE.write_text(text, "utf-8")


def _preamble(rounds: int) -> str:
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    return (
        f"Measured with `make bench ARGS='features --write'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, full durability;"
        f" the client and the database share the machine{_others()} Each round runs {JOBS:,} no-op"
        f" jobs ({round(JOBS * concepts.FEW):,} where each job has its own commit) in one process,"
        f" with {drained.THREADS} threads on PostgreSQL and one thread on the other stores."
        " Compare the ratios, not the rates: the queues being compared take turns, each in its"
        f" own empty store, and a ratio is the median of {rounds} rounds, followed by the lowest"
        " and the highest. *CPU* is the ratio of the CPU time used by the client and its server"
        " processes; lower is better. CPU time depends less on other work on the machine than"
        " speed does."
    )


def _others() -> str:
    load = os.getloadavg()[0]
    if load <= 1:
        return "."
    return f" with other work (load average {load:.0f} at the start)."


# Where the stores are


def _places(stack: ExitStack, stores: list[str]) -> dict[str, Address]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kesin-bench-")))
    numbers = iter(range(1, 10_000))
    places: dict[str, Address] = {}
    if "sqlite" in stores:
        places["SQLite"] = lambda: str(folder / f"{next(numbers)}.db")
    if "postgres" in stores:
        server = stack.enter_context(PostgresServer(fsync=True))
        places["PostgreSQL"] = lambda: server.create_database(f"bench_{next(numbers)}")
    if "redis" in stores:
        places["Redis"] = stack.enter_context(RedisServer(durable=True)).empty_url
    return places


@contextmanager
def _store(address: Address) -> Iterator[str]:
    """A store that is gone afterwards, so that nothing tidies it up while others are measured."""
    place = address()
    try:
        yield place
    finally:
        if drained.is_postgres(place):
            name = psycopg.conninfo.conninfo_to_dict(place)["dbname"]
            with psycopg.connect(place, dbname="postgres", autocommit=True) as admin:
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
        elif drained.is_redis(place):
            with closing(redis.Redis.from_url(place)) as server:
                server.flushdb()


# What a concept costs where it is used


class Ratio(NamedTuple):
    """A figure over another of the same round: the median, the lowest and the highest."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, pairs: list[tuple[float, float]]) -> Ratio:
        ratios = [one / other for one, other in pairs]
        return cls(median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.low:.2f}–{self.high:.2f})"


class Compared(NamedTuple):
    """The rounds of a concept, and those of what it is compared with."""

    name: str
    with_it: list[Run]
    without: list[Run]

    def rate(self, step: Callable[[Run], Spent]) -> float:
        return median(run.jobs / step(run).seconds for run in self.with_it)

    def speed(self, step: Callable[[Run], Spent]) -> Ratio:
        """How fast it is: below 1 it is slower."""
        return self._ratio(lambda run: run.jobs / step(run).seconds)

    def cpu(self, step: Callable[[Run], Spent]) -> Ratio:
        """What it costs: above 1 it takes more."""
        return self._ratio(lambda run: step(run).cpu)

    def _ratio(self, figure: Callable[[Run], float]) -> Ratio:
        pairs = zip(self.with_it, self.without, strict=True)
        return Ratio.of([(figure(one), figure(other)) for one, other in pairs])


def _enqueue(run: Run) -> Spent:
    return run.enqueue


def _drain(run: Run) -> Spent:
    return run.drain


STEPS = (_enqueue, _drain)


def compare(concept: Concept, address: Address, jobs: int, rounds: int) -> Compared:
    """Without and with it, in turns."""
    found = Compared(concept.name, [], [])
    jobs = max(round(jobs * concept.part), 2)
    other = concept.beside or PLAIN
    with ExitStack() as stack:
        without, with_it = (
            stack.enter_context(one.opened(stack.enter_context(_store(address)))) for one in (other, concept)
        )
        for _ in range(rounds):
            found.without.append(without(jobs))
            found.with_it.append(with_it(jobs))
    return found


def _used(report: Report, store: str, address: Address, rounds: int) -> None:
    found = []
    for concept in concepts.CONCEPTS:
        if store not in concept.stores:
            continue
        one = compare(concept, address, JOBS, rounds)
        say(f"{store}, {one.name}: enqueue {one.speed(_enqueue)}, drain {one.speed(_drain)}")
        found.append(one)
        if concept in (concepts.PRIORITY, concepts.SLOTTED, concepts.RATED, concepts.PARENTS):
            what = f"{store}: drain with {one.name} / without"
            report.aim(what, one.speed(_drain).middle, least=DRAIN_AT_LEAST)
    report.say(f"## {store}: when a feature is used")
    report.table(
        ("feature", "enqueue, jobs/s", "/ plain", "CPU", "drain, jobs/s", "/ plain", "CPU"),
        [(one.name, *_cells(one, _enqueue), *_cells(one, _drain)) for one in found],
    )


def _cells(one: Compared, step: Callable[[Run], Spent]) -> tuple[str, str, str]:
    return f"{one.rate(step):,.0f}", str(one.speed(step)), f"{one.cpu(step).middle:.2f}"


# What they cost where they are not used


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The files of a revision, in a folder that is gone afterwards."""
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory(prefix="kesin-bench-") as name:
        tree = Path(name) / "tree"
        subprocess.run([*git, "add", "--quiet", "--detach", tree, revision], check=True, capture_output=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True, capture_output=True)


@contextmanager
def revision_runs(tree: Path, address: str) -> Iterator[Go]:
    """The plain queue of the Kesin in a tree, in a process of its own."""
    command = [sys.executable, "-P", str(ROOT / "bench" / "drained.py"), address]
    with subprocess.Popen(
        command,
        env={**own_environment(), "PYTHONPATH": str(tree / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        asked, answers = child.stdin, child.stdout
        assert asked is not None
        assert answers is not None
        whose = json.loads(answers.readline() or '""')
        if not Path(whose).is_relative_to(tree):
            raise RuntimeError(f"the Kesin of {tree} was asked for, and {whose or 'none'} answered")

        def run(jobs: int) -> Run:
            print(jobs, file=asked, flush=True)
            count, enqueue, drain = json.loads(answers.readline())
            return Run(count, Spent(*enqueue), Spent(*drain))

        yield run
        asked.close()


def _unused(report: Report, places: dict[str, Address], revision: str) -> None:
    report.say(f"## When no feature is used: the plain queue compared with `{revision}`")
    try:
        with checked_out(revision) as before:
            found = {store: _against(before, address) for store, address in places.items()}
    except subprocess.CalledProcessError as problem:
        report.say(f"Not measured: {problem.stderr.decode().strip()}")
        return
    report.say(
        f"The table shows how much more time (in %) this commit takes than `{revision}`; the"
        " difference includes all changes in between. To show how noisy the machine is, the table"
        f" also compares this commit with itself in the same rounds. There were {SESSIONS}"
        f" sessions of {TURNS} rounds of {TURN_JOBS:,} jobs, and every session used new processes"
        " and stores. *Time* is the median of the rounds, followed by its uncertainty and the"
        " range of the middle half. *CPU* is the mean of the cheapest quarter of the rounds,"
        " because other work on the machine can only make a round more expensive; the range covers"
        f" 95% of {RESAMPLES} resamplings of the rounds."
    )
    rows: list[tuple[str, ...]] = []
    for store, (changed, same) in found.items():
        for step in STEPS:
            name = f"{store}, {step.__name__[1:]}"
            rows.append((f"{name}, time", _more(changed, step), _more(same, step)))
            rows.append((f"{name}, CPU", str(_cheapest(changed, step)), str(_cheapest(same, step))))
            percent = _cheapest(changed, step).percent
            report.aim(f"{name}: CPU, % more", percent, most=AT_MOST_PERCENT)
    report.table(("plain queue", f"% more than `{revision}`", "% more than itself"), rows)
    report.say(_noise([same for _, same in found.values()]))


class Cheapest(NamedTuple):
    """How much more processor time the cheapest quarter of the rounds took, in per cent."""

    percent: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.percent:+.1f} ({self.low:+.1f} to {self.high:+.1f})"


def _cheapest(one: Compared, step: Callable[[Run], Spent]) -> Cheapest:
    pairs = [(step(a).cpu / a.jobs, step(b).cpu / b.jobs) for a, b in zip(one.with_it, one.without, strict=True)]
    rng = random.Random(0)  # the same rounds give the same range
    tries = sorted(_more_of_quarter(rng.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    cut = RESAMPLES // 40
    return Cheapest(_more_of_quarter(pairs), tries[cut], tries[-1 - cut])


def _more_of_quarter(pairs: list[tuple[float, float]]) -> float:
    with_it, without = (fmean(sorted(side)[: len(side) // 4]) for side in zip(*pairs, strict=True))
    return 100 * (with_it / without - 1)


def _noise(itself: list[Compared]) -> str:
    """What the machine adds, as this commit against itself shows it."""
    figures = [_cheapest(one, step) for one in itself for step in STEPS]
    differs = max(abs(one.percent) for one in figures)
    unsure = max((one.high - one.low) / 2 for one in figures)
    found = (
        f"Measured in CPU time, this commit differs from itself by up to {differs:.1f}%, and the"
        f" uncertainty of a figure is up to ±{unsure:.1f} percentage points."
    )
    if max(differs, unsure) <= AT_MOST_PERCENT:
        return found
    return (
        f"{found} This run can therefore show that the {AT_MOST_PERCENT:g}% target is clearly"
        " missed, but not that it is met."
    )


def _against(before: Path, address: Address) -> tuple[Compared, Compared]:
    """This commit against the other, and against itself: in turns, there and back."""
    trees = {"old": before, "new": ROOT, "again": ROOT}
    found: dict[str, list[Run]] = {name: [] for name in trees}
    for session in range(SESSIONS):
        with ExitStack() as stack:
            runs = {
                name: stack.enter_context(revision_runs(tree, stack.enter_context(_store(address))))
                for name, tree in trees.items()
            }
            order = list(runs)
            for _ in range(TURNS):
                for name in order:
                    found[name].append(runs[name](TURN_JOBS))
                order.reverse()
        say(f"session {session + 1} of {SESSIONS} beside the other revision")
    changed = Compared("before", found["new"], found["old"])
    return changed, Compared("itself", found["again"], found["new"])


def _unsure(figures: list[float]) -> float:
    """How far the median of another run may lie from this one, as box plots notch it."""
    low, _, high = quantiles(figures, n=4)
    return 1.57 * (high - low) / sqrt(len(figures))


def _more(one: Compared, step: Callable[[Run], Spent]) -> str:
    pairs = zip(one.with_it, one.without, strict=True)
    percents = [100 * (step(a).seconds / step(b).seconds - 1) for a, b in pairs]
    low, middle, high = quantiles(percents, n=4)
    return f"{middle:+.1f} ±{_unsure(percents):.1f} ({low:+.1f} to {high:+.1f})"


# Beside the peers


class Beside(NamedTuple):
    """A concept of ours, and what each peer calls it; or why it has none."""

    concept: Concept
    pgqueuer: str
    procrastinate: str


BESIDE = (
    Beside(PLAIN, "plain", "plain"),
    Beside(concepts.WITHIN, "within", "within"),
    Beside(concepts.KEY, "key", "key"),
    Beside(concepts.PRIORITY, "priority", "priority"),
    Beside(concepts.SLOTTED, "slots", "locks only: one at a time"),
    Beside(concepts.ONE_A_TENANT, "one_a_tenant", "one_a_tenant"),
    Beside(concepts.SCHEDULES, "runs a function, creates no job", "schedules"),
    Beside(concepts.ASYNC, "always, see plain", "always, see plain"),
)
ONLY_OURS = (
    "Neither peer offers keys that persist after the job finishes (a `dedupe_key` is released"
    " when the job is done, a `queueing_lock` when it starts), rate limits, dependencies, typed"
    " payloads or progress. PgQueuer limits concurrency per entrypoint, so ten tenants need ten"
    " entrypoints. All jobs in a Procrastinate batch share their options: jobs with a"
    " `queueing_lock` of their own are enqueued one by one, and each priority or lock value needs"
    " its own batch."
)


def _beside_peers(report: Report, address: Address) -> None:
    names = [f"{shown} {version(shown.lower())}" for shown in ("PgQueuer", "Procrastinate")]
    report.say("## PostgreSQL: compared with peers, with the same feature")
    report.say(
        f"Figures are jobs per second, enqueued → drained: the medians of {PEER_ROUNDS} rounds in"
        f" which every queue runs. Kesin and PgQueuer process {JOBS:,} jobs each and Procrastinate"
        f" processes {PEER_JOBS['procrastinate']}; each queue runs in a single process with its"
        " fastest settings (`bench/peers`). Kesin's process is warm, whereas each peer starts in"
        " a new process; with so few jobs, this favours Kesin. To compare speeds, see [the longer"
        " drains](../benchmarks.md); this table shows the effect of a feature."
    )
    rows: list[tuple[str, ...]] = []
    for one in BESIDE:
        ours, *theirs = _race(one, address)
        cells = [cell for peer in theirs for cell in _beside(ours, peer)]
        rows.append((one.concept.name, _rates(ours), *cells))
        say(f"beside peers: {rows[-1]}")
    heads = [head for name in names for head in (name, "drain: Kesin /")]
    report.table(("feature", "Kesin", *heads), rows)
    report.say(ONLY_OURS)


Rates = list[tuple[float, float]]  # enqueue, drain


def _race(one: Beside, address: Address) -> tuple[Rates, Rates | str, Rates | str]:
    ours: Rates = []
    theirs: dict[str, Rates] = {}
    with _store(address) as place, one.concept.opened(place) as run:
        for _ in range(PEER_ROUNDS):
            found = run(round(JOBS * one.concept.part))
            ours.append((found.jobs / found.enqueue.seconds, found.jobs / found.drain.seconds))
            for peer, jobs in PEER_JOBS.items():
                feature = getattr(one, peer)
                if " " not in feature:  # no sentence
                    few = min(jobs, round(JOBS * one.concept.part))
                    where = ["--url", place, "--feature", feature]
                    line = peers_run.run(peer, jobs=few, processes=1, where=where)
                    rates = (line["enqueue_per_second"], line["drain_per_second"])
                    theirs.setdefault(peer, []).append(rates)
    pgqueuer = theirs.get("pgqueuer", one.pgqueuer)
    return ours, pgqueuer, theirs.get("procrastinate", one.procrastinate)


def _beside(ours: Rates, peer: Rates | str) -> tuple[str, str]:
    if isinstance(peer, str):
        return peer, ""
    drains = [(us[1], them[1]) for us, them in zip(ours, peer, strict=True)]
    return _rates(peer), f"{Ratio.of(drains).middle:.1f}"


def _rates(rates: Rates) -> str:
    enqueue, drain = (median(one) for one in zip(*rates, strict=True))
    return f"{enqueue:,.0f} → {drain:,.0f}"
