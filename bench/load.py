"""``make load``: many clients at once on `kesin serve`, and how fast it starts.

One process with SQLite, its own folder and port. Every client has a key of its own, one connection
that stays open, and one request under way at a time: an enqueue of one job, a look at the counts
or a page of jobs. The clients speak HTTP/1.1 over plain asyncio streams, because a real client
library would eat the processor that the server needs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.beside import own_environment
from bench.report import Report
from kesin.engine.access.accounts import Accounts
from kesin.engine.replay import verify
from kesin.foundation.logs import set_up_logs
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.store.directory import Directory
from kesin.store.open import open_store
from kesin.web.service import Service
from kesin.workloads import workloads

QUEUE = "pdf"
Mix = tuple[tuple[str, int], ...]
MIX: Mix = (("enqueue", 50), ("stats", 25), ("list", 25))
PATIENCE_S = 60.0
SAMPLE_S = 0.2
STARTS = 3
STARTS_TOLD = 9
PAGE = Path(__file__).parents[1] / "docs/contributing/request-benchmarks.md"


@dataclass(slots=True)
class Figures:
    """What came of a run."""

    seconds: float = 0.0
    taken: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind, _ in MIX})
    errors: Counter[str] = field(default_factory=Counter)
    born: list[str] = field(default_factory=list)  # jobs that were answered with 201
    lost: int = 0  # of these, jobs that are not in the store
    peak_mb: float = 0.0
    cpu_s: float = 0.0  # of the server

    @property
    def answers(self) -> int:
        return sum(len(one) for one in self.taken.values())


def main() -> int:
    asked = _arguments()
    report = Report("Request and start-up benchmarks" if asked.write else "Load")
    if asked.beside:
        from bench import requests, startup

        if asked.write:
            when, load = time.strftime("%Y-%m-%d"), os.getloadavg()[0]
            more = " --folder DIR" if asked.folder else ""
            more += " --old SRC'" if asked.old else "'"
            other = (
                f" (SRC is the `src` folder of commit {_commit(asked.old)}, with the libraries it required)"
                if asked.old
                else ""
            )
            report.say(
                f"Measured with `make load ARGS='--beside --seconds {asked.seconds:g} --clients"
                f" {asked.clients} --write{more}` on {when}{other}: {os.cpu_count()} cores, load"
                f" average {load:.0f} before the run, Python {platform.python_version()}, SQLite"
                f" {sqlite3.sqlite_version}. Compare only CPU times and the ratios within a run."
            )
        requests.run(report, asked.clients, asked.seconds, asked.folder, asked.old)
        requests.posted(report, asked.folder)
        if asked.write:
            startup.tell(report, STARTS_TOLD)
            PAGE.write_text(report.text(), "utf-8")
        print(report.text())
        return 0 if all(one.met for one in report.aims) else 1
    starts = [start_seconds() for _ in range(STARTS)]
    figures = run(asked.clients, asked.seconds)
    report.say(
        f"`python -m bench.load --seconds {asked.seconds:g} --clients {asked.clients}`:"
        f" {os.cpu_count()} cores shared by server and clients, Python"
        f" {platform.python_version()}, SQLite {sqlite3.sqlite_version}, `synchronous=FULL`."
    )
    _tell(report, figures)
    report.aim("errors", sum(figures.errors.values()), most=1)
    report.aim("jobs answered 201 and not in the store", figures.lost, most=1)
    report.aim("slowest p99 in seconds", max(map(_p99, figures.taken.values())), most=2)
    report.aim(f"seconds from exec to the first answer, best of {STARTS}", min(starts), most=2)
    print(report.text())
    for what, n in figures.errors.most_common(10):
        print(f"{n} × {what}", file=sys.stderr)
    return 0 if all(one.met for one in report.aims) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make load ARGS=", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (default 60)")
    parser.add_argument("--clients", type=int, default=200, help="at once (default 200)")
    parser.add_argument("--beside", action="store_true", help="enqueues, beside a bare handler")
    parser.add_argument("--write", action="store_true", help="with --beside: write the docs' page")
    parser.add_argument("--folder", help="with --beside: where the databases are")
    parser.add_argument("--old", default="", help="with --beside: the `src` of another checkout")
    return parser.parse_args()


def _commit(folder: str) -> str:
    command = ["git", "-C", folder, "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


# The server


@contextmanager
def serving(folder: Path, *, workers: bool = True, source: str = "") -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`kesin serve` on a free port, its log in the folder; ended with SIGTERM."""
    env = own_environment() | {"KESIN_DATA_DIR": str(folder / "data"), "KESIN_LOG": "json"}
    env["KESIN_RATE_PER_S"] = "1000000"  # few clients ask more often than one key may
    env |= {"PYTHONPATH": f"{_hidden(source, folder)}:{source}"} if source else {}
    log = folder / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "kesin.cli", "serve", "--port", "0"]
        process = subprocess.Popen(
            command if workers else [*command, "--no-workers"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield process, _address(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)


def _hidden(source: str, folder: Path) -> Path:
    """Where libraries fail to import that another checkout does not ask for: it had none."""
    asked = Path(source, "../pyproject.toml").read_text("utf-8")
    hidden = folder / "hidden"
    hidden.mkdir()
    for name in ("httptools", "uvloop"):
        if name not in asked:
            (hidden / f"{name}.py").write_text(f"raise ImportError('{name} is hidden')\n")
    return hidden


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        found = re.search(r"http://[\d.]+:\d+", log.read_text())
        if found:
            return found.group()
        time.sleep(0.005)
    raise RuntimeError(f"the server does not listen:\n{log.read_text()}")


def start_seconds() -> float:
    """From exec on an empty folder to the first 200 of /health/live."""
    with tempfile.TemporaryDirectory(prefix="kesin-load-") as name:
        began = time.monotonic()
        with serving(Path(name)) as (_, address):
            status = asyncio.run(_ask_once(address, "/health/live"))
            lasted = time.monotonic() - began
        if status != 200:
            raise RuntimeError(f"/health/live answered {status}")
        return lasted


def _make_keys(folder: Path, number: int) -> list[str]:
    (folder / "data").mkdir()
    store = open_store(str(folder / "data" / "kesin.db"), migrate=True)
    try:
        accounts = Accounts(Directory(store))
        who = system_actor("bench")
        return [accounts.create_key(who, f"client {n}", ["admin"])[0] for n in range(number)]
    finally:
        store.close()


# The clients


def run(clients: int, seconds: float) -> Figures:
    """So many clients for so long, against a server of its own."""
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="kesin-load-") as name:
        folder = Path(name)
        keys = _make_keys(folder, clients)
        with serving(folder) as (process, address):
            over = threading.Event()
            watch = threading.Thread(target=_watch_memory, args=(process.pid, figures, over))
            watch.start()
            began = time.monotonic()
            asyncio.run(_all_clients(address, keys, began + seconds, figures))
            figures.seconds = time.monotonic() - began
            figures.cpu_s = _cpu_seconds(process.pid)
            over.set()
            watch.join()
        _check(folder, figures)
    return figures


def _check(folder: Path, figures: Figures) -> None:
    """Every job answered 201 is there, and the history says the same as the rows."""
    store = open_store(str(folder / "data" / "kesin.db"), migrate=False)
    try:
        Service(Settings(data_dir=folder / "data"), store, workloads(), work=False)
        kept = {job.id for job, _ in store.scan(QUEUE)}
        figures.lost = sum(one not in kept for one in figures.born)
        verified = verify(store, QUEUE)
        figures.errors.update(str(one) for one in verified.differences)
    finally:
        store.close()


async def _all_clients(address: str, keys: list[str], until: float, figures: Figures, mix: Mix = MIX) -> None:
    clients = (_client(address, key, n, until, figures, mix) for n, key in enumerate(keys))
    await asyncio.gather(*clients)


async def _client(address: str, key: str, number: int, until: float, figures: Figures, mix: Mix) -> None:
    dice = random.Random(f"{number} {until}")  # each run has keys of its own
    run = dice.getrandbits(32)
    kinds, weights = zip(*mix, strict=True)
    connection = _Connection(address, key)
    count = 0
    while time.monotonic() < until:
        kind = dice.choices(kinds, weights)[0]
        count += 1
        began = time.monotonic()
        try:
            status, body = await asyncio.wait_for(connection.ask(*_request(kind, f"{number}-{run}", count)), PATIENCE_S)
        except (OSError, EOFError, TimeoutError, ValueError) as problem:
            figures.errors[f"{kind}: {type(problem).__name__}"] += 1
            connection.close()
            continue
        figures.taken[kind].append(time.monotonic() - began)
        if status != (201 if kind == "enqueue" else 200):
            figures.errors[f"{kind}: {status}"] += 1
        elif kind == "enqueue":
            figures.born += [one["id"] for one in json.loads(body)["jobs"]]
    connection.close()


def _request(kind: str, number: str, count: int) -> tuple[str, str, bytes]:
    if kind == "enqueue":
        body = {"jobs": [{"payload": {"client": number, "n": count}, "key": f"{number}-{count}"}]}
        return "POST", f"/api/queues/{QUEUE}/jobs", json.dumps(body).encode()
    if kind == "stats":
        return "GET", f"/api/queues/{QUEUE}/stats", b""
    return "GET", f"/api/queues/{QUEUE}/jobs?limit=20", b""


class _Connection:
    """One connection that stays open; opened again when it was closed."""

    def __init__(self, address: str, key: str = "") -> None:
        url = urlsplit(address)
        self._host, self._port = url.hostname, url.port
        self._head = f"Host: {url.netloc}\r\n" + (f"x-api-key: {key}\r\n" if key else "")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\n{self._head}"
        if body:
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        writer.write(head.encode() + b"\r\n" + body)
        told = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(told[9:12])
        length = int(told.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
        answer = await reader.readexactly(length)
        if b"connection: close" in told:
            self.close()
        return status, answer

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def _ask_once(address: str, path: str) -> int:
    connection = _Connection(address)
    status, _ = await connection.ask("GET", path, b"")
    connection.close()
    return status


# The figures


def _watch_memory(pid: int, figures: Figures, over: threading.Event) -> None:
    while not over.wait(SAMPLE_S):
        status = Path(f"/proc/{pid}/status").read_text()
        peak_kb = int(re.search(r"VmHWM:\s+(\d+)", status)[1])
        figures.peak_mb = max(figures.peak_mb, peak_kb / 1_024)


def _cpu_seconds(pid: int) -> float:
    spent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK")


def _quantile(taken: list[float], share: float) -> float:
    return sorted(taken)[min(int(len(taken) * share), len(taken) - 1)] if taken else 0.0


def _p99(taken: list[float]) -> float:
    return _quantile(taken, 0.99)


def _tell(report: Report, figures: Figures) -> None:
    rows = [
        (
            kind,
            f"{len(taken):,}",
            f"{len(taken) / figures.seconds:,.0f}",
            *(f"{_quantile(taken, share) * 1_000:,.0f}" for share in (0.5, 0.99, 1.0)),
        )
        for kind, taken in figures.taken.items()
    ]
    rows.append(("all", f"{figures.answers:,}", f"{figures.answers / figures.seconds:,.0f}", "", "", ""))
    report.table(("request", "answers", "per second", "p50 ms", "p99 ms", "longest ms"), rows)
    report.say(
        f"Server: {figures.peak_mb:.0f} MB at most, {figures.cpu_s:.1f} s of processor in"
        f" {figures.seconds:.1f} s; {sum(figures.errors.values())} errors."
    )


if __name__ == "__main__":
    set_up_logs("console", "error")
    sys.exit(main())
