"""The tour's stop at the printer: a few invoices through the queue, to real PDFs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kesin.cli.output import print_table, say, tally
from kesin.engine.queue import Queue
from kesin.store.contract import Store
from kesin.workloads.pdf.artifacts import PdfArtifactStore
from kesin.workloads.pdf.book import TemplateBook
from kesin.workloads.pdf.config import PdfRenderConfig
from kesin.workloads.pdf.engine import Engine
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.finding import pick_engine
from kesin.workloads.pdf.jobs import PdfJob, PdfJobStatus, PdfJobStore
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.paper import Paper
from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.worker import PdfRenderWorker, PdfWorker

TEMPLATE: Final = "invoice"
INVOICES: Final = 4
CUSTOMERS: Final = ("Demir Mobilya", "Işıl Çağrı", "Öztürk & Oğulları", "Güneş Ahşap")
TRY_S: Final = 30.0
FOLDER: Final = "artifacts"


def print_invoices(store: Store, folder: Path) -> bool:
    """Tell the story; whether every PDF that could be made is there.

    Raises RenderFailed before the first job if nothing can print here.
    """
    with _own_temporary_files(folder / "tmp"):
        return _story(store, folder, _printer())


def _story(store: Store, folder: Path, engine: Engine) -> bool:
    queue = Queue("pdf", pdf_lifecycle(), store)
    artifacts = PdfArtifactStore(open_storage(str(folder / FOLDER)))
    jobs = PdfJobStore(queue, artifacts)
    book = TemplateBook.load()
    sample = book.get(TEMPLATE).sample
    asked = [_ask(jobs, _invoice(sample, number)) for number in range(INVOICES)]
    again = _ask(jobs, _invoice(sample, 0))
    wrong = _ask(jobs, {**_invoice(sample, INVOICES), "stated_total": 1.0})
    same = again.job_id == asked[0].job_id
    say(f"   {INVOICES} invoices are asked for, one of them twice: {_twice(same)}")
    say("   and one whose stated total is not the sum of its lines")
    config = PdfRenderConfig(template_allowlist={TEMPLATE})
    renderer = PdfRenderWorker(jobs, artifacts, config, book=book, engines=lambda _: engine)
    PdfWorker(queue, renderer).drain()
    found = jobs.get_jobs([one.job_id for one in (*asked, wrong)])
    print_table(("invoice", "is", "what came of it"), [_line(one) for one in found.values()])
    say(f"   {tally(queue.stats().states)}")
    good = [found[one.job_id] for one in asked]
    made = all(_is_pdf(artifacts, one) for one in good)
    return same and made and found[wrong.job_id].status is PdfJobStatus.FAILED


def _ask(jobs: PdfJobStore, variables: dict[str, Any]) -> PdfJob:
    return jobs.create_job(TEMPLATE, {"variables": variables}, owner="demo")


def _invoice(sample: dict[str, Any], number: int) -> dict[str, Any]:
    buyer = {**sample["buyer"], "name": CUSTOMERS[number % len(CUSTOMERS)]}
    return {**sample, "number": f"D-{1001 + number}", "buyer": buyer}


def _twice(same: bool) -> str:
    return "both times it is the same job" if same else "that made two jobs"


def _line(job: PdfJob) -> tuple[str, str, str]:
    made = job.made or {}
    told = job.why or ""
    if made:
        told = f"{made['pages']} page, {made['bytes']} bytes, by {made['engine']}"
    return job.payload["variables"]["number"], job.status, told


def _is_pdf(artifacts: PdfArtifactStore, job: PdfJob) -> bool:
    return job.artifact_key is not None and artifacts.get_pdf(job.artifact_key).startswith(b"%PDF-")


def _printer() -> Engine:
    """Chromium if there is one that starts, else WeasyPrint; raises RenderFailed without any."""
    try:
        return _tried(pick_engine())
    except RenderFailed:
        return _tried(pick_engine("weasyprint"))


def _tried(engine: Engine) -> Engine:
    try:
        engine.render("<p>Kesin", Paper(), timeout_s=TRY_S)
    except RenderFailed:
        engine.close()
        raise
    return engine


@contextmanager
def _own_temporary_files(folder: Path) -> Iterator[None]:
    """What browser and driver leave lying about goes with the tour."""
    folder.mkdir()
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
        shutil.rmtree(folder, ignore_errors=True)
