"""The whole way: `kesin serve`, the process that renders beside it, and a real browser."""

import hashlib
import io
import os
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.engine.sweeper import Sweeper
from kesin.foundation.clock import ManualClock, wall_clock_us
from kesin.workloads.pdf.config import PdfRenderConfig
from kesin.workloads.pdf.jobs.heartbeat import workers_alive
from kesin.workloads.pdf.jobs.store import PdfJobStore
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.local import LocalStorage
from tests.cli.fork_server import CHILD_PYTHON, write_stub
from tests.cli.programs import Programs, is_alive, wait_until
from tests.web.serving import Served, opened, own_settings, serve
from tests.workloads.pdf.documents import text
from tests.workloads.pdf.press import BOOK, LEASE_S, SAMPLE, QuickEngine

ROWS = BOOK.get("conversion_report").sample["rows"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("integration")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as monkeypatch, Programs(folder) as programs:
        own_settings(monkeypatch, folder)
        env = {"KESIN_PDF_PROCESSES": "1", CHILD_PYTHON: str(write_stub(folder, "python"))}
        with serve(programs, folder, **env) as served:
            wait_until(lambda: pids(folder))
            yield served


def pids(folder: Path) -> list[int]:
    """The processes that render, as they say themselves: a worker's name holds its number."""
    with opened(folder) as store:
        return [int(name.rsplit("-", 2)[1]) for name in workers_alive(store)]


def request_for(number: str, **more: Any) -> dict[str, Any]:
    return {"template_name": "invoice", "variables": {**SAMPLE, "number": number}, **more}


def finished(served: Served, job_id: str) -> dict[str, Any]:
    """The job once it has ended."""
    seen: dict[str, Any] = {}

    def ended() -> bool:
        seen.update(served.client.get(f"/pdf/jobs/{job_id}").json())
        return seen["status"] in {"succeeded", "failed", "expired"}

    wait_until(ended)
    return seen


def test_a_pdf_is_requested_rendered_and_downloaded(served):
    response = served.client.post("/pdf/jobs", json=request_for("ÖĞ-1"))
    assert response.status_code == 202, response.text
    job = response.json()
    done = finished(served, job["job_id"])
    assert (done["status"], done["retry_count"], done["error_code"]) == ("succeeded", 0, None)
    pdf = served.client.get(done["download_url"])
    assert pdf.headers["content-type"] == "application/pdf"
    assert hashlib.sha256(pdf.content).hexdigest() == done["sha256"]
    assert "ÖĞ-1" in text(pdf.content)
    again = served.client.post("/pdf/jobs", json=request_for("ÖĞ-1"))
    assert (again.status_code, again.json()["job_id"]) == (200, job["job_id"])


def test_a_document_that_cannot_be_printed_fails_and_the_next_is_returned_at_once(served):
    sample = BOOK.get("conversion_report").sample
    report = {"template_name": "conversion_report", "variables": sample}
    report["options"] = {"page_ranges": "9"}
    job = served.client.post("/pdf/jobs", json=report).json()
    done = finished(served, job["job_id"])
    assert (done["status"], done["error_code"]) == ("failed", "TEMPLATE_ERROR")
    refused = served.client.get(f"/pdf/jobs/{job['job_id']}/download")
    assert refused.status_code == 409
    response = served.client.post("/pdf/jobs?wait=25", json=request_for("W-1"))
    assert (response.status_code, response.headers["content-type"]) == (200, "application/pdf")
    assert "W-1" in text(response.content)


def test_a_batch_becomes_one_archive(served):
    rows = [{**SAMPLE, "number": f"B-{n}"} for n in range(2)]
    response = served.client.post(
        "/pdf/batches", json={"template_name": "invoice", "rows": rows, "name_field": "number"}
    )
    assert response.status_code == 202, response.text
    where, seen = response.headers["location"], {}

    def ended() -> bool:
        seen.update(served.client.get(where).json())
        return seen["status"] not in {"queued", "running"}

    wait_until(ended)
    assert (seen["status"], seen["made"]) == ("succeeded", 2)
    archive = zipfile.ZipFile(io.BytesIO(served.client.get(seen["download_url"]).content))
    pdfs = sorted(name for name in archive.namelist() if name.endswith(".pdf"))
    assert [f"B-{n}" in text(archive.read(name)) for n, name in enumerate(pdfs)] == [True] * 2


def test_a_worker_killed_while_it_renders_costs_an_attempt_and_no_pdf(served, folder):
    [before] = pids(folder)
    report = {**BOOK.get("conversion_report").sample, "rows": ROWS * 150}
    body = {"template_name": "conversion_report", "variables": report}
    os.kill(before, signal.SIGSTOP)  # it must not be quicker than we are
    job = served.client.post("/pdf/jobs", json=body).json()["job_id"]
    os.kill(before, signal.SIGCONT)
    wait_until(lambda: served.client.get(f"/pdf/jobs/{job}").json()["status"] == "running")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: [pid for pid in pids(folder) if pid != before])
    body = request_for("W-3", options={"engine": "weasyprint"})  # starts sooner
    assert served.client.post("/pdf/jobs?wait=25", json=body).status_code == 200
    _render_a_minute_later(folder, job)
    done = finished(served, job)
    assert (done["status"], done["retry_count"]) == ("succeeded", 1)
    assert served.client.get(done["download_url"]).content.startswith(b"%PDF")


def _render_a_minute_later(folder: Path, job: str) -> None:
    """Recover the job when its lease is over, and render it: on a clock that is ahead."""
    later = ManualClock(wall_clock_us() + (LEASE_S + 1) * 1_000_000)
    artifacts = PdfArtifactStore(LocalStorage(folder / "data" / "artifacts"))
    with opened(folder) as store:
        queue = Queue("pdf", pdf_lifecycle(), store, clock=later)
        assert Sweeper([queue]).sweep(("recover",)).total == 1
        config = PdfRenderConfig(template_allowlist=set(BOOK.names))
        PdfRenderWorker(
            PdfJobStore(queue, artifacts), artifacts, config, library=BOOK, engines=lambda _: QuickEngine()
        ).process_job(job)


def test_a_killed_service_ends_the_processes_that_it_started(served, folder):
    """The last test of the module: it ends the service of all."""
    started = {pid for pid in pids(folder) if is_alive(pid)}  # not the one that was killed
    assert started
    assert served.client.get("/health/ready").status_code == 200
    served.signal(signal.SIGKILL)
    served.end()
    wait_until(lambda: not any(is_alive(pid) for pid in started))
