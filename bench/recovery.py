"""``make recovery``: seconds from a crash to the last job at rest, on every store.

Workers and sweepers are processes of their own, killed for real. A killed process is replaced at
once, as a supervisor does it, and a killed server started again at once: both are in the figure.
Every run ends with the promise: nothing lost, nothing done twice, budgets kept, replay empty.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import psycopg

import kesin
from bench.beside import own_environment, say
from bench.report import Report
from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.results import Done
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.foundation.clock import wall_clock_us
from kesin.lifecycle.model import Job
from kesin.store.errors import StoreUnreachable
from tests.apart import Member, Start, crew
from tests.faults.cast import Address
from tests.faults.promise import check_promise
from tests.redis_server import RedisServer
from tests.servers import PostgresServer

LEASE_S = 2
SWEEP_S = 0.5
IN_HAND = 20  # jobs that a killed worker holds
JOBS = 400
LOAD_S = 0.7  # under load before a server crashes
PATIENCE_S = 120.0
LOOK_S = 0.01
RULES = kesin.task_lifecycle("mill", lease_seconds=LEASE_S)
MILL = f'''
from pathlib import Path
from threading import Event

from kesin import Worker, task_lifecycle
from kesin.engine.workload import Workload

def mill(jobs):
    """The first service holds what it has, the next one works."""
    if not Path(__file__).with_name("go").exists():
        Path(__file__).with_name("began").touch()
        Event().wait()
    return [None] * len(jobs)

def make_worker(house):
    return Worker(house.queue, batch_handler=mill, batch={IN_HAND})

trade = Workload("mill", lambda: task_lifecycle("mill", lease_seconds={LEASE_S}), "Milling",
                 worker=make_worker)
'''


@dataclass(slots=True)
class World:
    """A store somewhere, its server if it has one, and the processes at work."""

    address: Address
    folder: Path
    begin: Start
    server: PostgresServer | RedisServer | None = None
    told: list[str] = field(default_factory=list)
    away_s: float = 0.0  # from the crash of a server until it took connections again

    def start(self, part: Callable[..., None]) -> Member:
        """A process that says when it is ready."""
        member = self.begin(part, self.address)
        member.hear()
        return member


Fault = Callable[[World, Queue], int]  # → when it happened, in microseconds


# The processes


def _be_quiet() -> None:
    """What goes wrong here is meant to."""
    logging.disable(logging.CRITICAL)


def _opened(address: Address) -> Queue:
    _be_quiet()
    return Queue("mill", RULES, kesin.open_store(address.url))


def hold(address: Address, pipe: Connection) -> None:
    """Take jobs and renew their leases until killed."""

    def handler(jobs: Sequence[Job]) -> list[Done]:
        pipe.send(len(jobs))
        threading.Event().wait()
        return []

    Worker(_opened(address), batch_handler=handler, batch=IN_HAND).run_once()


def work(address: Address, pipe: Connection) -> None:
    """A worker as `kesin worker` runs it."""
    worker = Worker(_opened(address), lambda _job: None, threads=2)
    pipe.send("ready")
    worker.run()


def sweep(address: Address, pipe: Connection) -> None:
    """A sweeper as `kesin sweep` runs it."""
    sweeper = Sweeper([_opened(address)], every_s={"cap": SWEEP_S, "recover": SWEEP_S})
    pipe.send("ready")
    sweeper.run()


# The faults


def _killed(member: Member) -> int:
    at = wall_clock_us()
    member.kill()
    return at


def worker_killed(world: World, queue: Queue) -> int:
    """With jobs in hand; another worker is there."""
    world.told += _filled(queue, JOBS)
    doomed = world.start(hold)
    world.start(sweep)
    world.start(work)
    _until(lambda: queue.stats().states["done"] == JOBS - IN_HAND)
    return _killed(doomed)


def worker_frozen(world: World, queue: Queue) -> int:
    """Stopped with jobs in hand, and woken when others have done them."""
    world.told += _filled(queue, JOBS)
    doomed = world.start(hold)
    world.start(sweep)
    world.start(work)
    _until(lambda: queue.stats().states["done"] == JOBS - IN_HAND)
    at = wall_clock_us()
    doomed.signal(signal.SIGSTOP)
    _until(lambda: queue.stats().states["done"] == JOBS)
    doomed.signal(signal.SIGCONT)
    return at


def all_killed(world: World, queue: Queue) -> int:
    """Worker and sweeper at once; both are started again."""
    world.told += _filled(queue, JOBS)
    doomed = [world.start(sweep), world.start(hold)]
    at = min([_killed(member) for member in doomed])
    world.start(sweep)
    world.start(work)
    return at


def _under_load(world: World, queue: Queue, crash: Callable[[], None]) -> int:
    world.start(sweep)
    world.start(work)
    until = time.monotonic() + LOAD_S
    while time.monotonic() < until:
        world.told += _filled(queue, 5)

    def timed() -> None:
        crash()
        world.away_s = (wall_clock_us() - at) / 1_000_000

    crashing = threading.Thread(target=timed)
    at = wall_clock_us()
    crashing.start()
    while crashing.is_alive():
        try:
            world.told += _filled(queue, 5)
        except StoreUnreachable:
            time.sleep(LOOK_S)
    crashing.join()
    return at


def postgres_stopped(world: World, queue: Queue) -> int:
    """`pg_ctl stop -m immediate`, and started again."""
    server = world.server
    assert isinstance(server, PostgresServer)

    def crash() -> None:
        server.stop("immediate")
        server.start()

    return _under_load(world, queue, crash)


def server_killed(world: World, queue: Queue) -> int:
    """Every process of it by SIGKILL, and started again."""
    server = world.server
    assert server is not None

    def crash() -> None:
        server.kill()
        server.start()

    return _under_load(world, queue, crash)


def connections_cut(world: World, queue: Queue) -> int:
    """`pg_terminate_backend` for every one."""

    def crash() -> None:
        with psycopg.connect(world.address.url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    return _under_load(world, queue, crash)


def service_killed(world: World, queue: Queue) -> int:
    """`kesin serve` with its worker and sweeper, and started again."""
    folder = world.folder / "plugged"
    info = folder / "mill-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mill\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kesin.workloads]\nmill = mill_work:trade\n")
    (folder / "mill_work.py").write_text(MILL)
    world.told += _filled(queue, JOBS)
    with _service(world, folder) as first:
        _until((folder / "began").exists)
        _until(lambda: queue.stats().states["running"] == IN_HAND)
        at = wall_clock_us()
        first.kill()
        first.wait()
    (folder / "go").touch()
    log = world.folder / "log"
    with _service(world, folder):
        _until(lambda: log.read_text().count('"listening"') == 2)  # one a start
        world.away_s = (wall_clock_us() - at) / 1_000_000
        _until(lambda: _at_rest(queue))
    return at


@contextmanager
def _service(world: World, plugged: Path) -> Iterator[subprocess.Popen[bytes]]:
    env = own_environment() | {"KESIN_DATA_DIR": str(world.folder), "KESIN_DATABASE_URL": world.address.url}
    env |= {"KESIN_SWEEP_S": "1", "KESIN_PDF_PROCESSES": "0", "PYTHONPATH": str(plugged)}
    env["KESIN_LOG"] = "json"
    with (world.folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kesin.cli", "serve", "--port", "0"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


# One run


def _filled(queue: Queue, jobs: int) -> list[str]:
    outcomes = queue.enqueue_many(NewJob({"n": n}) for n in range(jobs))
    return [outcome.id for outcome in outcomes]  # type: ignore[union-attr]


def _at_rest(queue: Queue) -> bool:
    states = queue.stats().states
    return states["ready"] == states["running"] == 0


def _until(fact: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            if fact():
                return
        except StoreUnreachable:
            pass
        if time.monotonic() > until:
            raise RuntimeError("it did not come about in time")
        time.sleep(LOOK_S)


@contextmanager
def _world(kind: str) -> Iterator[World]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kesin-bench-")))
        server: PostgresServer | RedisServer | None = None
        url = str(folder / "mill.db")
        if kind == "PostgreSQL":
            server = stack.enter_context(PostgresServer(fsync=True))
            url = server.create_database("mill")
        elif kind == "Redis":
            server = stack.enter_context(RedisServer(durable=True))
            url = server.url()
        yield World(Address(kind, url), folder, stack.enter_context(crew()), server)


def measure(kind: str, fault: Fault) -> tuple[float, float]:
    """Seconds from the fault to the last job at rest, and to the server's return.

    The promise is checked.
    """
    with _world(kind) as world, closing(kesin.open_store(world.address.url, migrate=True)) as store:
        queue = Queue("mill", RULES, store)
        at = fault(world, queue)
        _until(lambda: _at_rest(queue))
        kept = check_promise(store, "mill", RULES, world.told)
        return round(kept.recovery_s(at), 2), round(world.away_s, 2)


FAULTS: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "a worker is killed": (worker_killed, ("SQLite", "PostgreSQL", "Redis")),
    "a worker is stopped past its lease": (worker_frozen, ("SQLite", "PostgreSQL", "Redis")),
    "worker and sweeper are killed": (all_killed, ("SQLite", "PostgreSQL", "Redis")),
    "`kesin serve` is killed": (service_killed, ("SQLite", "PostgreSQL")),
    "the server is stopped with `immediate`": (postgres_stopped, ("PostgreSQL",)),
    "the server is killed": (server_killed, ("PostgreSQL", "Redis")),
    "all connections are cut": (connections_cut, ("PostgreSQL",)),
}
STARTED_AGAIN = (service_killed, postgres_stopped, server_killed)
STORES = ("SQLite", "PostgreSQL", "Redis")


def main() -> int:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(prog="make recovery ARGS=", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each (default 3)")
    parser.add_argument("--json", action="store_true", help="print every figure as JSON")
    asked = parser.parse_args()
    _be_quiet()
    taken: dict[str, dict[str, list[float]]] = {}
    for what, (fault, kinds) in FAULTS.items():
        for kind in kinds:
            runs = [measure(kind, fault) for _ in range(asked.rounds)]
            taken.setdefault(what, {})[kind] = [seconds for seconds, _ in runs]
            if fault in STARTED_AGAIN:
                taken.setdefault(f"{what}: it is back", {})[kind] = [away for _, away in runs]
            say(f"{what}, {kind}: {runs}")
    print(_as_json(taken) if asked.json else _as_text(taken, asked.rounds))
    return 0


def _as_json(taken: dict[str, dict[str, list[float]]]) -> str:
    told = {"lease_s": LEASE_S, "sweep_s": SWEEP_S, "cores": os.cpu_count(), "seconds": taken}
    return json.dumps(told, indent=2)


def _as_text(taken: dict[str, dict[str, list[float]]], rounds: int) -> str:
    report = Report("Recovery")
    report.say(
        f"Measured with `make recovery`: {os.cpu_count()} cores, Python"
        f" {platform.python_version()}."
        f" Leases of {LEASE_S} s, a sweep every {SWEEP_S} s (`kesin serve`: 1 s), full durability."
        f" Seconds from the crash to the last job at rest: median and worst of {rounds}."
    )
    rows = []
    for what, kinds in taken.items():
        cells = [_cell(kinds[kind]) if kind in kinds else "–" for kind in STORES]
        rows.append((what, *cells))
    report.table(("what happens", *STORES), rows)
    for kind, seconds in taken["a worker is killed"].items():
        ratio = max(seconds) / (LEASE_S + SWEEP_S)
        report.aim(f"{kind}: a killed worker's jobs / (lease + sweep)", ratio, most=1.5)
    return report.text()


def _cell(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} / {max(seconds):.1f}"


if __name__ == "__main__":
    sys.exit(main())
