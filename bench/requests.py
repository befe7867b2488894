"""``make load ARGS=--beside``: single enqueues over HTTP, beside a bare FastAPI handler.

Both servers run all the time, on the same disk, and are asked in turns of some seconds, so that
what else the machine does meets both alike. Only ratios of one run are worth reading. Beside the
answers a second stands the processor time that the server spent on one.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bench import load
from bench.beside import own_environment
from bench.report import Report

KESIN, BARE, OLD = "Kesin", "bare FastAPI handler", "Kesin from SRC"
ROUNDS = 5
WARM_UP_S = 1.0


@contextmanager
def bare(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    folder.mkdir()
    log = folder / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "bench.bare", str(folder / "bare.db")]
        process = subprocess.Popen(command, env=own_environment(), stdout=out, stderr=out)
    try:
        yield process, load._address(process, log)
    finally:
        process.terminate()
        process.wait(load.PATIENCE_S)


@contextmanager
def kesin(folder: Path, clients: int, source: str = "") -> Iterator[tuple]:
    folder.mkdir()
    keys = _keys_by(source, folder, clients) if source else load._make_keys(folder, clients)
    with load.serving(folder, workers=False, source=source) as (process, address):
        yield process, address, keys


def _keys_by(source: str, folder: Path, clients: int) -> list[str]:
    """Keys made by the other code, which may not know our schema."""
    keys = "load._make_keys(pathlib.Path(sys.argv[1]), int(sys.argv[2]))"
    code = f"import json, pathlib, sys\nfrom bench import load\nprint(json.dumps({keys}))"
    command = [sys.executable, "-c", code, str(folder), str(clients)]
    env = own_environment() | {"PYTHONPATH": source}
    done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE)
    made: list[str] = json.loads(done.stdout)
    return made


def turn(process, address: str, keys: list[str], seconds: float) -> tuple[load.Figures, float]:
    """So many clients for so long; the processor milliseconds of one answer."""
    figures = load.Figures()
    spent, began = load._cpu_seconds(process.pid), time.monotonic()
    asyncio.run(load._all_clients(address, keys, began + seconds, figures, (("enqueue", 1),)))
    figures.seconds = time.monotonic() - began
    spent = load._cpu_seconds(process.pid) - spent
    return figures, spent * 1_000 / max(figures.answers, 1)


def run(report: Report, clients: int, seconds: float, folder: str | None, old: str) -> None:
    turns: dict[str, list[tuple[load.Figures, float]]] = {}
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="kesin-", dir=folder))
        here = Path(name)
        servers = {KESIN: stack.enter_context(kesin(here / "kesin", clients))}
        servers[BARE] = (*stack.enter_context(bare(here / "bare")), servers[KESIN][2])
        if old:
            servers[OLD] = stack.enter_context(kesin(here / "old", clients, old))
        for server in servers.values():
            turn(*server, WARM_UP_S)
        for number in range(ROUNDS):
            for which in sorted(servers, reverse=number % 2 == 1):
                turns.setdefault(which, []).append(turn(*servers[which], seconds / ROUNDS))
    per_s = {which: median(figures.answers / figures.seconds for figures, _ in taken) for which, taken in turns.items()}
    report.say(
        f"## Single enqueues\n\n{clients} clients send requests for {seconds:g} s. Figures are"
        f" medians of {ROUNDS} interleaved rounds on {os.cpu_count()} cores, shared by servers and"
        " clients."
    )
    rows, slowest = [], {}
    for which, taken in turns.items():
        times = [lasted for figures, _ in taken for lasted in figures.taken["enqueue"]]
        slowest[which] = load._p99(times)
        shown = [f"{load._quantile(times, share) * 1_000:,.0f}" for share in (0.5, 0.99)]
        cost = median(cost for _, cost in taken)
        rows.append((which, f"{per_s[which]:,.0f}", *shown, f"{cost:.2f}"))
    report.table(("server", "enqueues per second", "p50 ms", "p99 ms", "CPU ms per response"), rows)
    failed = [error for taken in turns.values() for figures, _ in taken for error in figures.errors]
    report.aim("errors", len(failed), most=1)
    report.aim(f"{KESIN} / {BARE}", per_s[KESIN] / per_s[BARE], least=0.5)
    report.aim("p99 in seconds", slowest[KESIN], most=0.5)
    if old:
        report.aim(f"{KESIN} / {OLD}", per_s[KESIN] / per_s[OLD], least=3)


POSTED, TEMPLATE = 300, "invoice"


def posted(report: Report, folder: str | None) -> None:
    """`POST /pdf/jobs` by one client: the time in the server, as its log says, and its CPU time."""
    from kesin.store.open import open_store
    from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
    from kesin.workloads.pdf.templating.library import TemplateLibrary

    sample = TemplateLibrary.load().get(TEMPLATE).sample
    with tempfile.TemporaryDirectory(prefix="kesin-", dir=folder) as name:
        here = Path(name) / "pdf"
        with kesin(here, 1) as (process, address, keys):
            store = open_store(str(here / "data" / "kesin.db"), migrate=False)
            heart = Heartbeat(store, "bench")  # without a worker, jobs are refused after a while
            heart.start()
            spent = asyncio.run(_post(process.pid, address, keys[0], sample))
            heart.stop()
            store.close()
        lines = [json.loads(line) for line in (here / "log").read_text().splitlines()]
    times = [line["ms"] for line in lines if line.get("route") == "/pdf/jobs"][10:]
    p99 = load._quantile(times, 0.99)
    report.say(
        f"## `POST /pdf/jobs`\n\nOne client requests {len(times)} new jobs. Kesin validates each"
        " against its template's schema and writes it to disk before responding. In the server,"
        f" this takes {median(times):.1f} ms (median) or {p99:.1f} ms (99th percentile), and"
        f" {spent:.2f} ms of CPU time."
    )
    report.aim("POST /pdf/jobs, milliseconds in the server, median", median(times), most=4)


async def _post(pid: int, address: str, key: str, sample: dict) -> float:
    connection = load._Connection(address, key)
    spent = 0.0
    for number in range(POSTED):
        if number == 10:
            spent = load._cpu_seconds(pid)
        variables = {**sample, "number": f"F-{number}"}
        body = json.dumps({"template_name": TEMPLATE, "variables": variables}).encode()
        status, answer = await connection.ask("POST", "/pdf/jobs", body)
        assert status == 202, answer
    connection.close()
    return (load._cpu_seconds(pid) - spent) * 1_000 / (POSTED - 10)
