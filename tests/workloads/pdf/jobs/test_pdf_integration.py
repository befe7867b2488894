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
from tests.cli.programs import Programs, is_alive, wait_until
from tests.web.serving import Served, opened, own_settings, serve
from tests.workloads.pdf.documents import text
from tests.workloads.pdf.press import BOOK, LEASE_S, SAMPLE

ROWS = BOOK.get("conversion_report").sample["rows"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("integration")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as monkeypatch, Programs(folder) as programs:
        own_settings(monkeypatch, folder)
        with serve(programs, folder, KESIN_PDF_PROCESSES="1") as served:
            wait_until(lambda: pids(folder))
            yield served


def pids(folder: Path) -> list[int]:
    """The processes that render, as they say themselves: a worker's name holds its number."""
    with opened(folder) as store:
        return [int(name.rsplit("-", 2)[1]) for name in workers_alive(store)]


def asked(number: str, **more: Any) -> dict[str, Any]:
    return {"template_name": "invoice", "variables": {**SAMPLE, "number": number}, **more}


def finished(served: Served, job_id: str) -> dict[str, Any]:
    """The job once it has ended."""
    seen: dict[str, Any] = {}

    def ended() -> bool:
        seen.update(served.client.get(f"/pdf/jobs/{job_id}").json())
        return seen["status"] in {"succeeded", "failed", "expired"}

    wait_until(ended)
    return seen


def test_a_pdf_is_asked_for_rendered_and_fetched(served):
    answer = served.client.post("/pdf/jobs", json=asked("ÖĞ-1"))
    assert answer.status_code == 202, answer.text
    job = answer.json()
    done = finished(served, job["job_id"])
    assert (done["status"], done["retry_count"], done["error_code"]) == ("succeeded", 0, None)
    fetched = served.client.get(done["download_url"])
    assert fetched.headers["content-type"] == "application/pdf"
    assert hashlib.sha256(fetched.content).hexdigest() == done["sha256"]
    assert "ÖĞ-1" in text(fetched.content)
    again = served.client.post("/pdf/jobs", json=asked("ÖĞ-1"))
    assert (again.status_code, again.json()["job_id"]) == (200, job["job_id"])


def test_who_waits_gets_the_pdf_itself(served):
    answer = served.client.post("/pdf/jobs?wait=25", json=asked("W-1"))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/pdf")
    assert "W-1" in text(answer.content)


def test_what_cannot_be_printed_fails_with_its_reason_and_the_next_one_works(served):
    report = BOOK.get("conversion_report").sample
    asked_for = {
        "template_name": "conversion_report",
        "variables": report,
        "options": {"page_ranges": "9"},
    }
    job = served.client.post("/pdf/jobs", json=asked_for).json()
    done = finished(served, job["job_id"])
    assert (done["status"], done["error_code"]) == ("failed", "TEMPLATE_ERROR")
    refused = served.client.get(f"/pdf/jobs/{job['job_id']}/download")
    assert refused.status_code == 409
    assert served.client.post("/pdf/jobs?wait=25", json=asked("W-2")).status_code == 200


def test_a_batch_becomes_one_archive(served):
    rows = [{**SAMPLE, "number": f"B-{n}"} for n in range(3)]
    answer = served.client.post(
        "/pdf/batches", json={"template_name": "invoice", "rows": rows, "name_field": "number"}
    )
    assert answer.status_code == 202, answer.text
    where, seen = answer.headers["location"], {}

    def ended() -> bool:
        seen.update(served.client.get(where).json())
        return seen["status"] not in {"queued", "running"}

    wait_until(ended)
    assert (seen["status"], seen["made"]) == ("succeeded", 3)
    archive = zipfile.ZipFile(io.BytesIO(served.client.get(seen["download_url"]).content))
    pdfs = sorted(name for name in archive.namelist() if name.endswith(".pdf"))
    assert [f"B-{n}" in text(archive.read(name)) for n, name in enumerate(pdfs)] == [True] * 3


def test_a_worker_killed_in_the_middle_costs_a_try_and_no_pdf(served, folder):
    [before] = pids(folder)
    report = {**BOOK.get("conversion_report").sample, "rows": ROWS * 150}
    asked_for = {"template_name": "conversion_report", "variables": report}
    os.kill(before, signal.SIGSTOP)  # it must not be quicker than we are
    job = served.client.post("/pdf/jobs", json=asked_for).json()["job_id"]
    os.kill(before, signal.SIGCONT)
    wait_until(lambda: served.client.get(f"/pdf/jobs/{job}").json()["status"] == "running")
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: [one for one in pids(folder) if one != before])
    assert served.client.post("/pdf/jobs?wait=25", json=asked("W-3")).status_code == 200
    _render_a_minute_later(folder, job)
    done = finished(served, job)
    assert (done["status"], done["retry_count"]) == ("succeeded", 1)
    assert served.client.get(done["download_url"]).content.startswith(b"%PDF")


def _render_a_minute_later(folder: Path, job: str) -> None:
    """Take the job back when its lease is over, and render it: on a clock that is ahead."""
    later = ManualClock(wall_clock_us() + (LEASE_S + 1) * 1_000_000)
    artifacts = PdfArtifactStore(LocalStorage(folder / "data" / "artifacts"))
    with opened(folder) as store:
        queue = Queue("pdf", pdf_lifecycle(), store, clock=later)
        assert Sweeper([queue]).sweep(("recover",)).total == 1
        config = PdfRenderConfig(template_allowlist=set(BOOK.names))
        renderer = PdfRenderWorker(PdfJobStore(queue, artifacts), artifacts, config, library=BOOK)
        renderer.process_job(job)
        renderer.close()


def test_the_end_of_the_service_is_the_end_of_what_it_started(folder, tmp_path, monkeypatch):
    own_settings(monkeypatch, tmp_path)
    with Programs(tmp_path) as programs:
        with serve(programs, tmp_path, KESIN_PDF_PROCESSES="2") as ending:
            wait_until(lambda: len(pids(tmp_path)) == 2)
            first = pids(tmp_path)
            assert ending.client.get("/health/ready").status_code == 200
            ending.signal(signal.SIGTERM)
            assert ending.end() == 0
        assert not any(is_alive(one) for one in first)
        assert pids(tmp_path) == []
        with serve(programs, tmp_path, KESIN_PDF_PROCESSES="1") as dying:
            wait_until(lambda: pids(tmp_path))
            [child] = pids(tmp_path)
            dying.signal(signal.SIGKILL)
            dying.end()
            wait_until(lambda: not is_alive(child))
