"""How soon an idle worker in another process begins a job: Kesin on each store, beside its peers.

Everybody has one worker process and nothing to do, and gets one job at a time, in turns. The clock
runs from the return of the call that enqueues to the first line of the handler. What handlers take
that only wait is measured beside it: `bench/waiting.py`.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import math
import multiprocessing
import os
import platform
import random
import signal
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import waiting
from bench.beside import say
from bench.report import Report
from tests.redis_server import RedisServer
from tests.servers import PostgresServer

ROOT = Path(__file__).parent.parent
ROUNDS = 500  # two runs of 200 had ratios of 0.95 and 1.07 on PostgreSQL
SEED = 1
GAP_S = (0.04, 0.09)  # all are idle for so long before each job
PATIENCE_S = 10.0
READY_S = 120.0  # the first job of all also waits for its worker's start
SETTLE_S = 2.0  # until what the last jobs left behind is done
IDLE_S = 10.0
P50_MS, P99_MS, IDLE_PERCENT = 10, 50, 0.5  # the aims
NAME = "started"  # of the queue or task
APART = multiprocessing.get_context("spawn")
PR_SET_PDEATHSIG = 1

Send = Callable[[], object]  # enqueues one job, and returns when it is committed


# The handler of everybody

_reports: list[Connection] = []  # in a worker's process: where it reports to


def started() -> None:
    """Say when it began; RQ and Huey call it by its name."""
    _reports[0].send(time.monotonic())


# The contestants: how to send, with what it takes prepared, and how to work until killed


@contextmanager
def kesin_sends(where: str) -> Iterator[Send]:
    import kesin

    with closing(kesin.open_store(where)) as store:
        queue = kesin.Queue(NAME, kesin.task_lifecycle(), store)
        yield lambda: queue.enqueue({})


def kesin_works(where: str) -> None:
    import kesin

    queue = kesin.Queue(NAME, kesin.task_lifecycle(), kesin.open_store(where))
    kesin.Worker(queue, lambda _job: started()).run()


@contextmanager
def huey_sends(where: str) -> Iterator[Send]:
    from huey import SqliteHuey  # type: ignore[import-untyped]

    huey = SqliteHuey(filename=where, fsync=True)
    yield huey.task(name=NAME)(started)
    huey.storage.close()


def huey_works(where: str) -> None:
    from huey import SqliteHuey

    huey = SqliteHuey(filename=where, fsync=True)
    huey.task(name=NAME)(started)
    huey.create_consumer().run()


@contextmanager
def pgqueuer_sends(where: str) -> Iterator[Send]:
    import asyncpg  # type: ignore[import-untyped]
    import psycopg
    from pgqueuer.db import AsyncpgDriver, SyncPsycopgDriver
    from pgqueuer.queries import Queries, SyncQueries

    async def install() -> None:
        connection = await asyncpg.connect(where)
        queries = Queries(AsyncpgDriver(connection))
        await queries.install()  # durable by default: every table logged
        await queries.optimize_autovacuum()
        await connection.close()

    asyncio.run(install())
    with psycopg.connect(where, autocommit=True) as connection:
        queries = SyncQueries(SyncPsycopgDriver(connection))
        yield lambda: queries.enqueue(NAME, None)


def pgqueuer_works(where: str) -> None:
    import asyncpg
    import pgqueuer
    import uvloop

    @asynccontextmanager
    async def factory() -> AsyncIterator[pgqueuer.PgQueuer]:
        async with asyncpg.create_pool(where, min_size=2, max_size=10) as pool:
            queue = pgqueuer.PgQueuer.from_asyncpg_pool(pool)

            @queue.entrypoint(NAME)
            async def job(_job: pgqueuer.Job) -> None:
                started()

            yield queue

    uvloop.run(pgqueuer.run(factory))  # as its own command line does


@contextmanager
def procrastinate_sends(where: str) -> Iterator[Send]:
    from procrastinate import App, SyncPsycopgConnector

    with App(connector=SyncPsycopgConnector(conninfo=where)).open() as app:
        app.schema_manager.apply_schema()
        yield app.configure_task(NAME).defer


def procrastinate_works(where: str) -> None:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=where))

    @app.task(name=NAME)
    async def job() -> None:
        started()

    app.run_worker()


@contextmanager
def rq_sends(where: str) -> Iterator[Send]:
    import redis
    from rq import Queue

    with redis.Redis.from_url(where) as connection:
        queue = Queue(NAME, connection=connection)
        yield lambda: queue.enqueue(started)


def rq_works(where: str) -> None:
    import redis
    from rq import SimpleWorker

    worker = SimpleWorker([NAME], connection=redis.Redis.from_url(where))
    worker.work(logging_level="ERROR")


class Contestant(NamedTuple):
    """A queue, and the store it is kept in."""

    name: str
    store: str
    sends: Callable[[str], AbstractContextManager[Send]]
    works: Callable[[str], None]
    package: str = ""  # of a peer

    @property
    def shown(self) -> str:
        return f"{self.name} {version(self.package)}" if self.package else self.name


STORES = ("SQLite", "PostgreSQL", "Redis")
CONTESTANTS = (
    *(Contestant("Kesin", store, kesin_sends, kesin_works) for store in STORES),
    Contestant("Huey", "SQLite", huey_sends, huey_works, "huey"),
    Contestant("PgQueuer", "PostgreSQL", pgqueuer_sends, pgqueuer_works, "pgqueuer"),
    Contestant("Procrastinate", "PostgreSQL", procrastinate_sends, procrastinate_works, "procrastinate"),
    Contestant("RQ", "Redis", rq_sends, rq_works, "rq"),
)


# One contestant's worker, and what is measured of it


@dataclass(slots=True)
class Lane:
    """A contestant with its worker process."""

    who: Contestant
    send: Send
    pid: int
    pipe: Connection
    took_ms: list[float] = field(default_factory=list)
    idle_percent: float = 0.0

    @property
    def p50(self) -> float:
        return median(self.took_ms)

    @property
    def p99(self) -> float:
        return sorted(self.took_ms)[math.ceil(0.99 * len(self.took_ms)) - 1]

    def give(self, patience_s: float) -> float:
        """One job; the milliseconds from the return of the call to the start of the handler."""
        if self.pipe.poll():
            self._began()
            raise self._wrong("a handler began twice")
        self.send()
        returned = time.monotonic()
        if not self.pipe.poll(patience_s):
            raise self._wrong(f"no handler began within {patience_s:g} s")
        return 1_000 * max(self._began() - returned, 0.0)

    def _began(self) -> float:
        try:
            return float(self.pipe.recv())
        except EOFError:
            raise self._wrong("its worker ended") from None

    def _wrong(self, what: str) -> RuntimeError:
        return RuntimeError(f"{self.who.name} on {self.who.store}: {what}")


def _work(works: Callable[[str], None], where: str, pipe: Connection) -> None:
    """The worker process: it ends when its parent ends, however that is."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    logging.basicConfig(level=logging.ERROR)
    logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it minds an app in a script
    _reports.append(pipe)
    works(where)


@contextmanager
def _lane(who: Contestant, where: str) -> Iterator[Lane]:
    with who.sends(where) as send:
        ours, theirs = APART.Pipe(duplex=False)
        process = APART.Process(target=_work, args=(who.works, where, theirs), daemon=True)
        process.start()
        theirs.close()
        assert process.pid is not None
        try:
            yield Lane(who, send, process.pid, ours)
        finally:
            process.kill()
            process.join()
            ours.close()


def _race(lanes: list[Lane], rounds: int) -> None:
    """One job for everybody in every round, each time in another order."""
    chance = random.Random(SEED)
    for number in range(1, rounds + 1):
        for lane in chance.sample(lanes, len(lanes)):
            time.sleep(chance.uniform(*GAP_S))
            lane.took_ms.append(lane.give(PATIENCE_S))
        if number % 20 == 0 or number == rounds:
            say(f"round {number} of {rounds}")


def _rest(lanes: list[Lane]) -> None:
    """Let everybody be idle, and see what it costs."""
    began = time.monotonic()
    before = [_cpu_seconds(lane.pid) for lane in lanes]
    time.sleep(IDLE_S)
    after = [_cpu_seconds(lane.pid) for lane in lanes]
    seconds = time.monotonic() - began
    for lane, less, more in zip(lanes, before, after, strict=True):
        lane.idle_percent = 100 * (more - less) / seconds


def _cpu_seconds(pid: int) -> float:
    """Of a process and its children, those included that have ended."""
    process = Path(f"/proc/{pid}")
    spent = (process / "stat").read_text().rsplit(")", 1)[1].split()[11:15]
    own = sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")
    children = [pid for one in process.glob("task/*/children") for pid in one.read_text().split()]
    return own + sum(_cpu_seconds(int(child)) for child in children)


def run(report: Report, rounds: int) -> None:
    """Start everybody, measure, and say what was found."""
    with ExitStack() as stack:
        places = _places(stack)
        peaks = {store: waiting.measure(next(places[store])) for store in STORES}
        say("handlers have waited")
        lanes = [stack.enter_context(_lane(who, next(places[who.store]))) for who in CONTESTANTS]
        for lane in lanes:
            lane.give(READY_S)
        say("all are ready")
        time.sleep(SETTLE_S)
        _race(lanes, rounds)
        time.sleep(SETTLE_S)
        _rest(lanes)
    _tell(report, lanes)
    _tell_memory(report, peaks)


def _places(stack: ExitStack) -> dict[str, Iterator[str]]:
    """Where a queue is kept: in a folder or database of its own."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kesin-bench-")))
    postgres = stack.enter_context(PostgresServer(fsync=True))
    redis = stack.enter_context(RedisServer(durable=True))

    def file(number: int) -> str:
        (folder / str(number)).mkdir()
        return str(folder / str(number) / "jobs.db")

    return {
        "SQLite": map(file, range(1, 10)),
        "PostgreSQL": (postgres.create_database(f"pickup_{number}") for number in range(1, 10)),
        "Redis": map(redis.url, range(1, 10)),
    }


def _tell(report: Report, lanes: list[Lane]) -> None:
    rows: list[tuple[str, ...]] = []
    for lane in lanes:
        figures = (lane.p50, lane.p99, max(lane.took_ms), lane.idle_percent)
        rows.append((lane.who.shown, lane.who.store, *(f"{one:.1f}" for one in figures)))
    report.table(("worker", "store", "p50 ms", "p99 ms", "max ms", "idle, % of a core"), rows)
    kesins = [lane for lane in lanes if not lane.who.package]
    peers = [lane for lane in lanes if lane.who.package]
    same = [(one, [peer for peer in peers if peer.who.store == one.who.store]) for one in kesins]
    report.say(f"Kesin's p50 / the fastest peer's p50 on the same store: {_ratios(same)}.")
    every = [(one, peers) for one in kesins]
    report.say(f"Kesin's p50 / the fastest peer's p50 on any store: {_ratios(every)}.")
    for lane, beside in same:
        what = f"{lane.who.store}: p50 / fastest peer on the same store"
        report.aim(what, lane.p50 / _fastest(beside).p50, most=1)
    for lane in kesins:
        report.aim(f"{lane.who.store}: p50, ms", lane.p50, most=P50_MS)
        report.aim(f"{lane.who.store}: p99, ms", lane.p99, most=P99_MS)
        report.aim(f"{lane.who.store}: idle, % of a core", lane.idle_percent, most=IDLE_PERCENT)


def _ratios(pairs: list[tuple[Lane, list[Lane]]]) -> str:
    ratios = []
    for lane, peers in pairs:
        fastest = _fastest(peers)
        ratios.append(f"{lane.who.store} {lane.p50 / fastest.p50:.2f} ({fastest.who.name})")
    return ", ".join(ratios)


def _fastest(lanes: list[Lane]) -> Lane:
    return min(lanes, key=lambda lane: lane.p50)


def _tell_memory(report: Report, peaks: dict[str, waiting.Peak]) -> None:
    report.say("## Handlers that wait")
    report.say(
        f"One worker process runs {waiting.HANDLERS:,} `async def` handlers concurrently, and all"
        f" of them wait for {waiting.HELD_S:g} s while their leases are renewed. The table shows"
        " the peak resident set size (`VmHWM`) and the size before the first job."
    )
    rows = [(store, f"{peak.idle_mb:.0f}", f"{peak.waiting_mb:.0f}") for store, peak in peaks.items()]
    report.table(("store", "before the first job, MB", "all waiting, MB"), rows)
    for store, peak in peaks.items():
        what = f"{store}: {waiting.HANDLERS:,} waiting handlers, MB"
        report.aim(what, peak.waiting_mb, most=waiting.MOST_MB)


def main(*, rounds: int, write: bool) -> None:
    """Measure, print, and write docs/contributing/pickup-benchmarks.md if asked."""
    report = Report("Pickup benchmarks")
    when = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    report.say(
        f"Measured with `make bench ARGS='pickup --write'` on {when}: {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, full durability;"
        " the producer, workers and servers share the machine with other work (load average"
        f" {os.getloadavg()[0]:.1f} before the run). Figures are milliseconds"
        " from the return of the call that enqueues a job to the first line of its handler, which"
        " runs in an idle worker in another process. A handler that starts before the call"
        " returns counts as 0. Every queue has one worker with default settings, and all workers"
        f" are idle at the same time. Each of the {rounds} rounds enqueues one job per queue, in"
        f" random order, {1_000 * GAP_S[0]:.0f} to {1_000 * GAP_S[1]:.0f} ms apart. *Idle* is the"
        f" CPU time of the worker process over {IDLE_S:g} s without jobs, after the last round; it"
        " excludes the server's share."
    )
    run(report, rounds)
    text = report.text()
    print(text)
    if write:
        (ROOT / "docs" / "contributing" / "pickup-benchmarks.md").write_text(text, "utf-8")
