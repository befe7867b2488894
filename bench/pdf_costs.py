"""What a job of the pdf workload costs beside a bare page: each step, each standard, a merge.

Everything is printed by one warm worker and by the page of a bare loop, in turns. The second half
compares two worker processes with one, on the same jobs.
"""

from __future__ import annotations

import io
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pikepdf
from playwright.sync_api import sync_playwright

from bench.beside import own_environment, say
from bench.report import Report
from kesin.foundation.encryption import new_key
from kesin.foundation.settings import Settings
from kesin.store.open import open_store
from kesin.workloads.pdf.engines import archive
from kesin.workloads.pdf.engines.base import Paper, find_chromium
from kesin.workloads.pdf.engines.chromium import print_options
from kesin.workloads.pdf.jobs.store import RenderRequest
from kesin.workloads.pdf.services import open_job_store
from kesin.workloads.pdf.steps import finishing
from kesin.workloads.pdf.steps.finishing import finish, finish_pdf
from kesin.workloads.pdf.templating.library import TemplateLibrary

if TYPE_CHECKING:
    from bench.pdf import Bench

ROUNDS = 4
A_ROUND = 10  # documents of each kind
MERGED = 10
BUYERS = (
    *("Ayşe Çelik", "Gül Şahin", "Jürgen Groß", "Ömer Işık", "Zoë Müller"),
    *("Çağrı Öztürk", "İpek Yıldız", "François Noël", "Ağaç Ürünleri A.Ş.", "Kübra Doğan"),
)
WORKERS = (1, 2)
WORKER_ROUNDS = 2
SHARED = 100  # jobs that one worker drains, and then two
WARMED = 12  # jobs before them, so that each worker has its browser
PATIENCE_S = 300.0
OWNER, TEMPLATE = "bench", "invoice"
PASSWORDS = {"user": "open", "owner": "all"}


def keyed_settings(folder: Path) -> Settings:
    """Settings with a key ring, which sealed passwords need."""
    return Settings(data_dir=folder, secret_keys=new_key("bench"))


def steps(report: Report, bench: Bench) -> None:
    """A job with each step, and with each standard, beside the bare page in turns."""
    upload, _ = bench.worker.renderer.uploads.store(OWNER, _terms(), "pdf")
    kinds: dict[str, dict[str, Any]] = {
        "a job without steps": {},
        "`append` with an upload": {"then": [{"append": {"upload": upload}}]},
        "`prepend` with an upload": {"then": [{"prepend": {"upload": upload}}]},
        "`stamp`": {"then": [{"stamp": {"text": "TASLAK", "opacity": 0.15, "angle": 45}}]},
        "`metadata`": {"then": [{"metadata": {"title": "Fatura", "author": "Kesin"}}]},
        "`encrypt`": {"then": [{"encrypt": {"mac": "bench"}}]},
        "`pdf/a-3b`": {"conformance": ["pdf/a-3b"]},
        "`pdf/ua-1`": {"conformance": ["pdf/ua-1"], "paper": {"tagged": True}},
        "`pdf/a-3a` and `pdf/ua-1`": {"conformance": ["pdf/a-3a", "pdf/ua-1"], "paper": {"tagged": True}},
    }
    bare, spent = list[float](), {kind: list[float]() for kind in kinds}
    sizes: dict[str, int] = {}
    options = print_options(Paper())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium())
        page = browser.new_page()
        for number in range(ROUNDS + 1):  # the first only warms up
            began = time.perf_counter()
            for _ in range(A_ROUND):
                page.set_content(bench.html)
                assert page.pdf(**options).startswith(b"%PDF")
            bare.append((time.perf_counter() - began) / A_ROUND)
            for kind, payload in kinds.items():
                ids = _enqueue(bench, payload, A_ROUND if number else 1)
                spent[kind].append(bench.drain() / len(ids))
                sizes[kind] = _size(bench, ids)
            say(f"round {number}: bare {bare[-1]:.3f}, " + _listed(spent))
        browser.close()
    best = min(bare[1:])
    rows = [("bare page", *_figures(bare[1:]), "1.00", "")]
    rows += [
        (kind, *_figures(each[1:]), f"{min(each[1:]) / best:.2f}", f"{sizes[kind] / 1_000:.1f}")
        for kind, each in spent.items()
    ]
    report.say(
        "## Steps and standards\n\n`make bench ARGS='pdf --rows steps'`: the bare page, then a"
        f" job of each kind; {ROUNDS} rounds with {A_ROUND} of each. Every job goes through the"
        " queue and storage end to end. The appended upload has one page. Parts are merged in a"
        " separate process with resource limits, and starting this process accounts for most of"
        " the cost."
    )
    head = ("kind", "best round, ms", "median, ms", "ratio to the bare page", "kB")
    report.table(head, rows)
    plain = min(spent["a job without steps"][1:])
    for kind, each in list(spent.items())[1:]:
        report.aim(f"a job that uses {kind} / a job without steps", min(each[1:]) / plain)


def _enqueue(bench: Bench, payload: dict[str, Any], count: int) -> list[str]:
    """So many jobs of a kind; their ids. Passwords are stored as the service does it."""
    ids, ring = [], bench.worker.renderer._ring
    assert ring is not None
    for variables in bench.variables(count):
        request = RenderRequest(TEMPLATE, {**payload, "variables": variables}, OWNER)
        with bench.store.transaction():
            job_id = bench.jobs.enqueue(request).job.job_id
            if "encrypt" in payload.get("then", [{}])[0]:
                bench.jobs.put_passwords(job_id, PASSWORDS, ring)
        ids.append(job_id)
    return ids


def _size(bench: Bench, ids: list[str]) -> int:
    jobs = [bench.jobs.get_job(job_id) for job_id in ids]
    problems = [job.error_message for job in jobs if job.status != "succeeded"]
    assert not problems, problems
    return int(jobs[0].result["bytes"])


def merges(report: Report, bench: Bench) -> None:
    """Ten different invoices as one file: as they are, and with each font once."""
    parts, renderer = [], bench.engine
    for at, buyer in enumerate(BUYERS[:MERGED]):
        variables = {**bench.sample, "number": f"F-{at}"}
        variables["buyer"] = {**bench.sample["buyer"], "name": buyer}
        html = bench.book.render_html(TEMPLATE, variables)
        parts.append(renderer.render(html, Paper(), timeout_s=60).pdf)
    titled = [(part, f"part {at}") for at, part in enumerate(parts)]
    head = {"parts": [[len(part), title] for part, title in titled], "main": 0}
    began = time.perf_counter()
    plain = _plain_merge(parts)
    plain_s, began = time.perf_counter() - began, time.perf_counter()
    _, whole = finish(head, b"".join(parts))
    whole_s, began = time.perf_counter() - began, time.perf_counter()
    alike, _ = finish_pdf(titled, 0)
    child_s = time.perf_counter() - began
    assert alike == whole
    report.say(
        f"## Merging\n\n`make bench ARGS='pdf --rows merges'`: {MERGED} invoices for different"
        " buyers, merged into one file with a bookmark for each."
    )
    rows = [
        ("all files together", sum(map(len, parts)), 0.0),
        ("merged, each with its fonts", len(plain), plain_s),
        ("merged, each font embedded once", len(whole), whole_s),
        ("the same, in a process with resource limits", len(alike), child_s),
    ]
    report.table(
        ("file", "kB", "ms"), [(what, f"{size / 1_000:.0f}", f"{1_000 * s:.0f}" if s else "") for what, size, s in rows]
    )
    report.aim("merged file / the same with all fonts", len(whole) / len(plain), most=0.6)


def _plain_merge(parts: list[bytes]) -> bytes:
    out = io.BytesIO()
    with pikepdf.new() as merged:
        opened = [pikepdf.open(io.BytesIO(part)) for part in parts]
        for part in opened:
            merged.add_pages_from(part)
        finishing.add_bookmarks(merged, [(f"part {at}", at) for at in range(len(parts))])
        merged.save(out, **archive.SAVED, deterministic_id=True)
        for part in opened:
            part.close()
    return out.getvalue()


def _terms() -> bytes:
    """A PDF of one page, as a client uploads it."""
    out = io.BytesIO()
    with pikepdf.new() as pdf:
        pdf.add_blank_page(page_size=(595, 842))
        pdf.save(out)
    return out.getvalue()


def two_workers(report: Report) -> None:
    """The same jobs by one worker process and by two, in turns."""
    spent: dict[int, list[float]] = {count: [] for count in WORKERS}
    for number in range(WORKER_ROUNDS):
        for count in WORKERS:
            with tempfile.TemporaryDirectory(prefix="kesin-bench-") as name:
                spent[count].append(_drained_by(count, Path(name)))
            say(f"round {number}: {count} workers, {spent[count][-1]:.1f} s")
    report.say(
        f"## Two workers\n\n`make bench ARGS='pdf --rows workers'`: {SHARED} jobs, drained"
        f" alternately by one `kesin worker pdf` and by two, in {WORKER_ROUNDS} rounds with warm"
        f" browsers on {os.cpu_count()} cores."
    )
    report.table(
        ("workers", "best round, s", "jobs per second"),
        [(str(n), f"{min(each):.1f}", f"{SHARED / min(each):.1f}") for n, each in spent.items()],
    )
    report.aim("two workers / one, jobs per second", min(spent[1]) / min(spent[2]), least=1)


def _drained_by(workers: int, folder: Path) -> float:
    """Seconds in which so many warm workers drain the jobs."""
    from bench.pdf import house_over

    settings = Settings(data_dir=folder)
    store = open_store(settings.database)
    jobs, sample = open_job_store(house_over(settings, store)), _sample()

    def finish_more(first: int, count: int) -> float:
        for number in range(first, first + count):
            variables = {**sample, "number": f"F-{number}"}
            jobs.create_job(TEMPLATE, {"variables": variables})
        began = time.perf_counter()
        while store.stats("pdf").states["succeeded"] < first + count:
            assert time.perf_counter() - began < PATIENCE_S
            assert all(child.poll() is None for child in children)
            time.sleep(0.02)
        return time.perf_counter() - began

    children = [
        subprocess.Popen(
            [sys.executable, "-m", "kesin.cli", "worker", "pdf"],
            env={**own_environment(), "KESIN_DATA_DIR": str(folder)},
            stderr=subprocess.DEVNULL,
        )
        for _ in range(workers)
    ]
    try:
        done = 0
        while not done or _renderers(store) < workers:  # until each has printed
            finish_more(done, WARMED)
            done += WARMED
        return finish_more(done, SHARED)
    finally:
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            child.wait(60)
        store.close()


def _renderers(store: Any) -> int:
    """How many workers say that they have printed."""
    from kesin.workloads.pdf.jobs.heartbeat import open_heartbeats

    beats = open_heartbeats(store).read(store.stats("pdf").now)
    return sum(bool(beat.state.get("done")) for beat in beats)


def _sample() -> dict[str, Any]:
    sample: dict[str, Any] = TemplateLibrary.load().get(TEMPLATE).sample
    return sample


def _figures(each: list[float]) -> tuple[str, str]:
    return f"{1_000 * min(each):.0f}", f"{1_000 * statistics.median(each):.0f}"


def _listed(spent: dict[str, list[float]]) -> str:
    return ", ".join(f"{kind} {each[-1]:.3f}" for kind, each in spent.items())
