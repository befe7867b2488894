"""What the pdf workload promises: nearly the speed of a bare loop, with everything around it.

The same invoice throughout, on the same Chromium. The bare loop writes ready HTML into one page
and prints it; the worker claims a job, checks and fills the template, renders, stores the PDF with
a flush to the disk and writes the result down.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page, sync_playwright

from bench import load, pdf_costs
from bench.beside import own_environment, say
from bench.report import Report
from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.worker import Worker
from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import set_up_logs
from kesin.foundation.settings import Settings
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.open import open_store
from kesin.workloads.pdf.engines.base import Paper, find_chromium
from kesin.workloads.pdf.engines.chromium import ChromiumEngine, print_options
from kesin.workloads.pdf.jobs.worker import PdfWorker
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.services import create_worker, open_job_store
from kesin.workloads.pdf.templating.library import TemplateLibrary

ROUNDS = 6
A_ROUND = 40  # documents
LAUNCHES = 4  # of a browser for one document, in each round
DRAINED = 200
KILLED_AFTER = 5
RENDERS = 500
A_LOOK = 50  # renders between two looks at the memory
ASKED, WARM = 50, 10  # requests over HTTP, and how many of them only warm up
FIRST_LOOK = 10  # renders, of the start
ROWS = ("speed", "burst", "steps", "merges", "http", "memory", "workers")
TEMPLATE = "invoice"
PATIENCE_S = 600.0


def run(report: Report, rows: Collection[str] = ROWS) -> None:
    """These rows, one after the other; most share a warm worker."""
    set_up_logs(level="error")
    warm = {
        "speed": (_speed,),
        "burst": (_drained, _killed),
        "steps": (pdf_costs.steps,),
        "merges": (pdf_costs.merges,),
    }
    if not warm.keys().isdisjoint(rows):
        with tempfile.TemporaryDirectory(prefix="kesin-bench-") as name, _bench(Path(name)) as one:
            for measure in (each for row, all_of in warm.items() if row in rows for each in all_of):
                measure(report, one)
    alone = {"http": _over_http, "memory": _memory, "workers": pdf_costs.two_workers}
    for row, measure_alone in alone.items():
        if row in rows:
            measure_alone(report)


class Bench:
    """A warm worker over a store on disk, and the page of a bare loop beside it."""

    def __init__(self, folder: Path) -> None:
        settings = pdf_costs.keyed_settings(folder)
        self.store = open_store(settings.database)
        house = house_over(settings, self.store)
        self.jobs = open_job_store(house)
        self.worker: PdfWorker = create_worker(house)
        self.worker.heartbeat.start()
        self.book = TemplateLibrary.load()
        self.sample = self.book.get(TEMPLATE).sample
        self.html = self.book.render_html(TEMPLATE, self.sample)
        self._numbers = 0

    @property
    def engine(self) -> ChromiumEngine:
        """The worker's own."""
        engine = self.worker.renderer._engine(None)
        assert isinstance(engine, ChromiumEngine)
        return engine

    def enqueue(self, count: int) -> list[str]:
        """So many jobs, no two alike; their ids."""
        return [self.jobs.create_job(TEMPLATE, {"variables": variables}).job_id for variables in self.variables(count)]

    def variables(self, count: int) -> Iterator[dict[str, Any]]:
        """The sample with a new number, so many times."""
        for _ in range(count):
            self._numbers += 1
            yield {**self.sample, "number": f"F-{self._numbers}"}

    def drain(self) -> float:
        """Render all that waits; how many seconds it took. The browser stays."""
        began = time.perf_counter()
        Worker.drain(self.worker)
        return time.perf_counter() - began

    def close(self) -> None:
        """End the worker's browser."""
        self.worker.heartbeat.stop()
        self.worker.renderer.close()
        self.store.close()


@contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    bench = Bench(folder)
    try:
        yield bench
    finally:
        bench.close()


def _speed(report: Report, bench: Bench) -> None:
    """Rounds of all three, one after the other, so that a slow minute falls on everybody."""
    options = print_options(Paper())
    bare, worker, launched = [], [], []
    with sync_playwright() as playwright:

        def launch() -> Any:
            return playwright.chromium.launch(executable_path=find_chromium())

        browser = launch()
        page = browser.new_page()
        _bare(page, bench.html, options, A_ROUND)
        bench.enqueue(A_ROUND)
        bench.drain()
        for number in range(ROUNDS):
            bare.append(_timed(lambda: _bare(page, bench.html, options, A_ROUND)) / A_ROUND)
            bench.enqueue(A_ROUND)
            worker.append(bench.drain() / A_ROUND)
            seconds = _timed(lambda: _launches(launch, bench.html, options))
            launched.append(seconds / LAUNCHES)
            say(f"round {number}: {bare[-1]:.4f} {worker[-1]:.4f} {launched[-1]:.3f} s a document")
        browser.close()
    rows = [
        (what, f"{1_000 * min(each):.0f}", f"{1_000 * statistics.median(each):.0f}", per_second)
        for what, each in (
            ("bare loop of `set_content` and `page.pdf`", bare),
            ("worker: claim, template, render, store, finish", worker),
            ("a browser for each document", launched),
        )
        for per_second in [f"{1 / min(each):.1f}"]
    ]
    report.say(
        "## Speed\n\n`make bench ARGS='pdf --rows speed'`: the same document, rendered in three ways in rotation."
    )
    report.table(("method", "best round, ms", "median, ms", "per second, best"), rows)
    report.aim("worker / bare loop, documents per second", min(bare) / min(worker), least=0.90)
    report.aim("worker / one launch per document", min(launched) / min(worker), least=8)


def _bare(page: Page, html: str, options: dict[str, Any], count: int) -> None:
    for _ in range(count):
        page.set_content(html)
        assert page.pdf(**options).startswith(b"%PDF")


def _launches(launch: Callable[[], Any], html: str, options: dict[str, Any]) -> None:
    for _ in range(LAUNCHES):
        browser = launch()
        _bare(browser.new_page(), html, options, 1)
        browser.close()


def _drained(report: Report, bench: Bench) -> None:
    ids = bench.enqueue(DRAINED)
    seconds = bench.drain()
    failed = sum(one.status != "succeeded" for one in map(bench.jobs.get_job, ids))
    report.say(
        f"## A burst\n\n`make bench ARGS='pdf --rows burst'`: one worker drained {DRAINED} jobs in"
        f" {seconds:.1f} s; {failed} of them failed."
    )
    report.aim(f"failures in {DRAINED} jobs", failed, most=1)


def _killed(report: Report, bench: Bench) -> None:
    """SIGKILL to the browser while it renders."""
    ids = bench.enqueue(A_ROUND)
    done, pid = bench.worker.renderer.rendered_count, bench.engine.browser_pid
    over = threading.Event()

    def kill() -> None:
        while bench.worker.renderer.rendered_count < done + KILLED_AFTER and not over.is_set():
            time.sleep(0.001)
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    seconds = bench.drain()
    over.set()
    killer.join()
    jobs = list(map(bench.jobs.get_job, ids))
    failed = sum(one.status != "succeeded" for one in jobs)
    retried = sum(one.retry_count for one in jobs)
    assert bench.engine.browser_pid != pid
    report.say(
        f"The browser was killed with SIGKILL partway through {A_ROUND} jobs: all were drained in"
        f" {seconds:.1f} s; {failed} failed, and {retried} returned to the queue (the engine"
        " itself renders a document again if its browser dies)."
    )
    report.aim(f"failures in {A_ROUND} jobs when the browser is killed", failed, most=1)


def _over_http(report: Report) -> None:
    """One client of an idle `kesin serve` with its own worker, beside the bare page, in turns."""
    sample, options = TemplateLibrary.load().get(TEMPLATE).sample, print_options(Paper())
    html = TemplateLibrary.load().render_html(TEMPLATE, sample)
    bare, served = [], []
    with tempfile.TemporaryDirectory(prefix="kesin-bench-") as name, sync_playwright() as playwright:
        key = load._make_keys(Path(name), 1)[0]
        page = playwright.chromium.launch(executable_path=find_chromium()).new_page()
        with (
            load.serving(Path(name)) as (_, address),
            httpx.Client(base_url=address, headers={"x-api-key": key}, timeout=60) as client,
        ):
            for number in range(ASKED):
                bare.append(_timed(lambda: _bare(page, html, options, 1)))
                variables = {**sample, "number": f"F-{number}"}
                body = {"template_name": TEMPLATE, "variables": variables}
                began = time.perf_counter()
                answer = client.post("/pdf/jobs?wait=30", json=body)
                while answer.status_code == 503:  # its worker starts
                    time.sleep(0.1)
                    began, answer = time.perf_counter(), client.post("/pdf/jobs?wait=30", json=body)
                served.append(time.perf_counter() - began)
                assert answer.content.startswith(b"%PDF"), answer.text
        page.context.browser.close()
    bare_ms, served_ms = (1_000 * statistics.median(each[WARM:]) for each in (bare, served))
    report.say(
        "## One invoice over HTTP\n\n`make bench ARGS='pdf --rows http'`: `POST"
        " /pdf/jobs?wait=30` on an idle `kesin serve`, one request at a time, alternating with"
        f" the bare page, {ASKED - WARM} times each. The medians are {served_ms:.0f} ms from the"
        f" request to the PDF and {bare_ms:.0f} ms for the bare page. `POST /pdf/jobs` on its own"
        " is measured with the [other requests](request-benchmarks.md)."
    )
    report.aim("one invoice over HTTP / bare page", served_ms / bare_ms, most=1.4)


def _memory(report: Report) -> None:
    """A worker as it runs in the world, and what its processes hold together."""
    looks: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory(prefix="kesin-bench-") as name:
        settings = Settings(data_dir=Path(name))
        store = open_store(settings.database)
        jobs = open_job_store(house_over(settings, store))
        sample = TemplateLibrary.load().get(TEMPLATE).sample
        for number in range(RENDERS):
            variables = {**sample, "number": f"F-{number}"}
            jobs.create_job(TEMPLATE, {"variables": variables})
        child = subprocess.Popen(
            [sys.executable, "-m", "kesin.cli", "worker", "pdf", "--until-idle"],
            env={**own_environment(), "KESIN_DATA_DIR": name},
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + PATIENCE_S
        while (done := store.stats("pdf").states["succeeded"]) < RENDERS:
            assert time.monotonic() < until
            assert child.poll() is None
            if done >= (len(looks) * A_LOOK or FIRST_LOOK):
                looks.append((done, pss_mib(child.pid)))
                say(f"{looks[-1][0]} renders: {looks[-1][1]:.0f} MiB")
            time.sleep(0.05)
        child.wait(60)
        store.close()
    (_, start), (_, end) = looks[0], looks[-1]
    report.say(
        "## Memory of the worker and its browser\n\n`make bench ARGS='pdf --rows memory'`:"
        f" {start:.0f} MiB after {looks[0][0]} renders and {end:.0f} MiB after {looks[-1][0]}, an"
        f" increase of {end - start:.0f} MiB. The browser is replaced from time to time, so"
        " individual samples vary."
    )
    report.table(
        ("renders", *(str(done) for done, _ in looks)),
        [("MiB, PSS of all its processes", *(f"{mib:.0f}" for _, mib in looks))],
    )
    first = statistics.median(mib for _, mib in looks[1:4])  # the browser is warm
    last = statistics.median(mib for _, mib in looks[-3:])
    report.aim("memory, last three samples / first three after warm-up", last / first, most=1.2)


def house_over(settings: Settings, store: Store) -> WorkloadContext:
    """What the workload is given, without a service around it."""
    queue = Queue("pdf", pdf_lifecycle(), store)
    return WorkloadContext(settings, Commands({"pdf": queue}, Accounts(Directory(store))), queue)


def pss_mib(pid: int) -> float:
    """What a process and all below it hold; what they share is counted once."""
    parents: dict[int, list[int]] = {}
    for one in Path("/proc").iterdir():
        if one.name.isdigit():
            try:
                told = (one / "stat").read_text()
            except OSError:
                continue
            parents.setdefault(int(told.rpartition(")")[2].split()[1]), []).append(int(one.name))
    tree, held = [pid], 0
    while tree:
        one_pid = tree.pop()
        tree += parents.get(one_pid, [])
        try:
            lines = Path(f"/proc/{one_pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        held += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return held / 1_024


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
