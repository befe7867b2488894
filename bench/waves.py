"""``make soak ARGS=waves``: a million jobs from enqueue to prune, in waves, and what stays behind.

Each wave is enqueued, drained by a worker, and the wave before it is pruned by the sweeper's own
statement. So as many jobs are there after each wave, and tables and indexes must stay as they are:
their size after the last wave may be at most 1.5 times that after the second. PostgreSQL has its
autovacuum, which looks every ten seconds instead of every minute, because days are minutes here.

Beside the sizes it says what a job costs: processor time of client and database, and WAL.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import kesin
from kesin.engine.replay import verify
from kesin.store.contract import Store
from kesin.store.postgres.store import PostgresStore
from kesin.store.sqlite.store import SqliteStore
from tests.servers import PostgresServer, _children

QUEUE = "waves"
MOST = 1.5
SMALL = 2_000_000  # bytes: what is smaller does not count by itself
SECOND = 2  # the wave whose sizes are the measure
BATCH = 1_000
CLAIMED = 500  # a worker's own batch
PHASES = ("enqueue", "run", "prune")


class Spent(NamedTuple):
    """What was spent up to a moment."""

    wall_s: float
    client_s: float
    server_s: float
    wal_bytes: int

    def __sub__(self, other: Spent) -> Spent:  # type: ignore[override]  # these are never multiplied
        return Spent._make(mine - its for mine, its in zip(self, other, strict=True))

    def __add__(self, other: Spent) -> Spent:  # type: ignore[override]
        return Spent._make(mine + its for mine, its in zip(self, other, strict=True))


NOTHING = Spent(0.0, 0.0, 0.0, 0)


@dataclass(slots=True)
class Waves:
    """A store that waves of jobs go through."""

    store: Store
    server: PostgresServer | None
    path: Path
    sizes: list[dict[str, int]] = field(default_factory=list)  # after each wave
    costs: dict[str, Spent] = field(default_factory=dict)
    jobs: int = 0
    at_once: int = BATCH  # jobs in a call that enqueues, claims or finishes

    def run(self, jobs: int, waves: int) -> None:
        """Let so many jobs through, in so many waves."""
        queue = kesin.Queue(QUEUE, kesin.task_lifecycle(keep_days=0), self.store)
        threads = 1 if isinstance(self.store, SqliteStore) else 2
        worker = kesin.Worker(queue, lambda _job: None, name="w", threads=threads, batch=min(self.at_once, CLAIMED))
        [prune] = (move for move in queue.lifecycle.scheduled_moves if move.stage == "prune")
        wave = jobs // waves
        for number in range(1, waves + 1):
            before = self._spent()
            for first in range(0, wave, self.at_once):
                queue.enqueue_many([kesin.NewJob({"n": first + n}) for n in range(self.at_once)])
            before = self._charge("enqueue", before)
            worker.drain()
            before = self._charge("run", before)
            for _ in range(wave // BATCH if number > 1 else 0):
                assert queue.sweep(prune, limit=BATCH) == BATCH
            self.store.compact(QUEUE)
            self._charge("prune", before)
            self.jobs += wave
            self.sizes.append(self._sizes())
            done = queue.stats().states["done"]
            assert done == wave, f"{done} jobs are left of a wave of {wave}"
            _say(f"wave {number}: {sum(self.sizes[-1].values()) / 1e6:.1f} MB")
        audit = verify(self.store, QUEUE)
        assert audit, audit.differences[0]

    def _charge(self, phase: str, before: Spent) -> Spent:
        now = self._spent()
        self.costs[phase] = self.costs.get(phase, NOTHING) + (now - before)
        return now

    def _spent(self) -> Spent:
        wal = 0
        if isinstance(self.store, PostgresStore):
            sql = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
            wal = self.store._rows(sql, {})[0][0]
        server_s = _server_s(self.server) if self.server else 0.0
        return Spent(time.monotonic(), time.process_time(), server_s, wal)

    def _sizes(self) -> dict[str, int]:
        """The bytes of each table and index."""
        if isinstance(self.store, PostgresStore):
            rows = self.store._rows(
                "SELECT relname, pg_relation_size(oid) FROM pg_class"
                " WHERE relnamespace = 'kesin'::regnamespace AND relkind IN ('r', 'i')",
                {},
            )
            return dict(rows)
        files = [self.path, self.path.with_name(self.path.name + "-wal")]
        return {file.name: file.stat().st_size for file in files if file.exists()}

    def grown(self) -> dict[str, float]:
        """How many times as large each is after the last wave as after the second."""
        second, last = self.sizes[SECOND - 1], self.sizes[-1]
        total = {"all together": sum(last.values()) / sum(second.values())}
        return total | {
            name: last[name] / max(second.get(name, 0), SMALL)
            for name in sorted(last, key=lambda name: -last[name])
            if last[name] > SMALL
        }


def _server_s(server: PostgresServer) -> float:
    """Processor time of all the server's processes, of those that have ended too."""
    pid = server.pid
    assert pid is not None
    reaped = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[13:15]
    total = sum(map(int, reaped)) / 100
    for each in (pid, *_children(pid)):
        with suppress(FileNotFoundError, ProcessLookupError):
            total += int(Path(f"/proc/{each}/schedstat").read_text().split()[0]) / 1e9
    return total


def measure(kind: str, jobs: int, waves: int, at_once: int = BATCH) -> Waves:
    """Let the waves through a new store of this kind."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kesin-waves-")))
        server, path = None, folder / "waves.db"
        address = str(path)
        if kind == "postgres":
            settings: dict[str, str | int] = {"autovacuum_naptime": "10s"}
            server = stack.enter_context(PostgresServer(fsync=True, settings=settings))
            address = server.create_database("waves")
        store = kesin.open_store(address)
        stack.callback(store.close)
        through = Waves(store, server, path, at_once=at_once)
        through.run(jobs, waves)
        return through


def table(kind: str, through: Waves, waves: int) -> str:
    """The sizes and the costs, as Markdown."""
    wave = through.jobs // waves
    shown = list(dict.fromkeys((1, SECOND, (SECOND + waves) // 2, waves)))
    grown = through.grown()
    lines = [
        f"### {kind}: {through.jobs:,} jobs in {waves} waves of {wave:,}",
        "",
        "| MB after wave | " + " | ".join(map(str, shown)) + " | last / second |",
        "|---|" + "---:|" * (len(shown) + 1),
    ]
    for name, ratio in grown.items():
        sizes = [
            sum(each.values()) if name == "all together" else each.get(name, 0)
            for each in (through.sizes[number - 1] for number in shown)
        ]
        cells = " | ".join(f"{size / 1e6:.1f}" for size in sizes)
        lines.append(f"| {name} | {cells} | {ratio:.2f} |")
    head = "| a job, microseconds | client | database | wall | WAL bytes |\n|---|---:|---:|---:|---:|"
    lines += ["", head]
    total = NOTHING
    for phase in PHASES:
        spent = through.costs[phase]
        jobs = through.jobs - (wave if phase == "prune" else 0)
        a_job = Spent._make(value / jobs for value in spent)
        total += a_job
        lines.append(_cost(phase, a_job))
    lines += [_cost("all", total), ""]
    kept = sum(through.sizes[0].values()) / wave  # before anything was pruned
    lines.append(f"Disk for a finished job that is kept, with its history: {kept:,.0f} bytes.")
    return "\n".join(lines) + "\n"


def _cost(phase: str, spent: Spent) -> str:
    wall, client, server = (f"{1e6 * value:.0f}" for value in spent[:3])
    return f"| {phase} | {client} | {server} | {wall} | {spent.wal_bytes:,.0f} |"


def main() -> int:
    """Run the waves, print the tables; 1 if something grew."""
    parser = argparse.ArgumentParser(prog="python -m bench.waves", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--waves", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=BATCH, help="jobs in one call (default 1000)")
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgres"])
    asked = parser.parse_args()
    if asked.waves <= SECOND or asked.jobs % (asked.waves * BATCH) or BATCH % asked.at_once:
        parser.error(f"jobs must be a multiple of {BATCH:,} times the waves, 3 or more")
    worst = []
    for kind in asked.stores:
        through = measure(kind, asked.jobs, asked.waves, asked.at_once)
        print(table(kind, through, asked.waves), flush=True)
        name, ratio = max(through.grown().items(), key=lambda item: item[1])
        worst.append((ratio, f"{kind}: {name} {ratio:.2f} times its size after wave {SECOND}"))
    print("; ".join(text for _, text in worst))
    return 1 if any(ratio >= MOST for ratio, _ in worst) else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
