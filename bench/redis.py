"""Kesin's Redis store beside RQ on the same server, and PDFs by several workers.

RQ is given its fastest way: one process that forks for nobody, and results that are not kept. It
takes its jobs one by one; so that nobody thinks it is only that, Kesin is measured so as well.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import kesin
from bench import lanes, peers_run
from bench.beside import own_environment, say
from bench.pdf import TEMPLATE, house_over
from bench.report import Report
from kesin.engine.replay import verify
from kesin.foundation.logs import set_up_logs
from kesin.foundation.settings import Settings
from kesin.store.contract import Store
from kesin.store.redis.store import RedisStore
from kesin.workloads import built_in
from kesin.workloads.common.stores import open_workload_stores
from kesin.workloads.pdf.jobs.dispatch import enqueue_pdf_job
from kesin.workloads.pdf.jobs.store import PdfJobStore
from kesin.workloads.pdf.services import open_job_store
from kesin.workloads.pdf.templating.library import TemplateLibrary
from tests.redis_server import RedisServer

ROUNDS = 2
JOBS = 10_000
ONE_BY_ONE = 1_000
OF_RQ = 500
PDFS = 60
WARM = 6  # documents a worker renders before the clock runs
WORKERS = (1, 2, 3)
PATIENCE_S = 120.0
WAYS = {"Kesin, engine": (JOBS, {"threads": lanes.LANES}), "Kesin, one job per claim": (ONE_BY_ONE, {"batch": 1})}


def run(report: Report) -> None:
    """Everything, one after the other."""
    set_up_logs(level="error")
    for durable, title in (
        (True, "Flushed to disk before every response (`appendfsync always`)"),
        (False, "In memory only"),
    ):
        report.say(f"## {title}, jobs per second")
        _drains(report, durable=durable)
    _pdfs(report)


def _drains(report: Report, *, durable: bool) -> None:
    best: dict[str, float] = {}
    with RedisServer(durable=durable) as server:
        for _ in range(ROUNDS):
            for way, (jobs, how) in WAYS.items():
                _keep(best, way, _drained(server.url(1), jobs, how))
            line = peers_run.run("rq_redis", jobs=OF_RQ, processes=1, where=["--url", server.url(2)])
            _keep(best, f"RQ {line['version']}, SimpleWorker", line["drain_per_second"])
    report.table(("drain, 1 process", "jobs/s"), [(way, f"{n:,.0f}") for way, n in best.items()])
    engine, one, rq = best.values()
    kind = "flushed to disk" if durable else "in memory"
    report.aim(f"engine / RQ, {kind}", engine / rq, least=10)
    report.aim(f"one job per claim / RQ, {kind}", one / rq, least=1)


def _keep(best: dict[str, float], way: str, per_second: float) -> None:
    say(f"{way}: {per_second:,.0f} jobs/s")
    best[way] = max(best.get(way, 0.0), per_second)


def _drained(url: str, jobs: int, how: dict[str, int]) -> float:
    """Jobs a second, and that every one of them replays."""
    with closing(kesin.open_store(url)) as store:
        assert isinstance(store, RedisStore)
        store.client.flushdb()
        queue = kesin.Queue(lanes.QUEUE, kesin.task_lifecycle(), store)
        lanes.fill(queue, jobs)
        began = time.perf_counter()
        done = kesin.Worker(queue, lambda _job: None, **how).drain()  # type: ignore[arg-type]
        seconds = time.perf_counter() - began
        audit = verify(store, lanes.QUEUE)
        assert (done, audit.events, audit.different) == (jobs, 3 * jobs, 0)
        return jobs / seconds


def _pdfs(report: Report) -> None:
    """Each number of workers on a server of its own; they are warm before the clock runs."""
    speeds = []
    for count in WORKERS:
        with RedisServer(durable=True) as server, tempfile.TemporaryDirectory() as name:
            settings = Settings(data_dir=Path(name), redis_url=server.url())
            with closing(open_workload_stores(settings, built_in())) as store:
                jobs = open_job_store(house_over(settings, store))
                with _working(settings, count):
                    _rendered(store, jobs, count * WARM)
                    seconds = _rendered(store, jobs, PDFS)
        speeds.append(PDFS / seconds)
        say(f"{count} workers: {speeds[-1]:.1f} PDFs/s")
    report.say(
        f"## PDFs\n\nThroughput for {PDFS} invoices, measured from the first request to the last"
        " stored PDF, with one to three `kesin worker pdf --rq` processes. Each process has its"
        " own browser, and all of them share the cores with Redis and the client."
    )
    report.table(("workers", *map(str, WORKERS)), [("PDFs/s", *(f"{one:.1f}" for one in speeds))])
    report.aim("two workers / one", speeds[1] / speeds[0], least=1.3)


@contextmanager
def _working(settings: Settings, count: int) -> Iterator[None]:
    told = {"KESIN_DATA_DIR": str(settings.data_dir), "KESIN_REDIS_URL": str(settings.redis_url)}
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "kesin.cli", "worker", "pdf", "--rq"],
            env={**own_environment(), **told},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(60)


_numbers = iter(range(1_000_000))


def _rendered(store: Store, jobs: PdfJobStore, count: int) -> float:
    """Ask for so many documents, no two alike; the seconds until the last is there."""
    sample = TemplateLibrary.load().get(TEMPLATE).sample
    before = store.stats("pdf").states["succeeded"]
    began = time.perf_counter()
    for _ in range(count):
        variables = {**sample, "number": f"F-{next(_numbers)}"}
        made = jobs.create_job(TEMPLATE, {"variables": variables})
        enqueue_pdf_job(made.job_id, store=store)
    moved = store.notification_count("pdf")
    while store.stats("pdf").states["succeeded"] < before + count:
        assert time.perf_counter() - began < PATIENCE_S, store.stats("pdf")
        store.wait("pdf", moved, 1)  # until somebody has moved a job
        moved = store.notification_count("pdf")
    return time.perf_counter() - began
