"""What a job says while its template, or a newer change to it, cannot be used."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker
from kesin.workloads.pdf.templating.library import TemplateLibrary
from tests.workloads.pdf.press import Press, opened_press


@pytest.fixture
def press(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Press]:
    with opened_press("sqlite", tmp_path, request) as press:
        yield press


def test_an_error_says_that_a_newer_change_of_the_template_is_not_in_use(press, monkeypatch):
    why = RenderFailed("TEMPLATE_ERROR", "line 1: syntax error")
    monkeypatch.setattr(press.worker.library, "rejected", {"invoice": why})
    suffix = "; a newer change to the template cannot be used: line 1: syntax error"
    for pinned in ({}, {"version": "invoice", "pinned": True}):
        job = press.jobs.create_job("invoice", {"variables": {"number": len(pinned)}} | pinned)
        press.worker.process_job(job.job_id)
        assert press.seen(job).error_message.endswith(suffix) == (not pinned)
    press.engine.fails("BROWSER_LAUNCH_FAILED", "it died")
    job = press.ask()
    press.worker.process_job(job.job_id)
    assert "newer change" not in press.seen(job).error_message


def test_templates_that_cannot_be_read_and_a_strange_payload_fail_their_job_only(press):
    def unreadable() -> TemplateLibrary:
        raise RenderFailed("TEMPLATE_ERROR", "there is no such folder")

    worker = PdfRenderWorker(
        press.jobs, press.artifacts, press.config, library=unreadable, engines=lambda _: press.engine
    )
    strange = press.jobs.queue.enqueue({"problem": 1, "self": 2})
    for job_id in (press.ask().job_id, strange.id):
        worker.process_job(job_id)
        job = press.jobs.get_job(job_id)
        assert (job.status, job.error_code) == ("failed", "TEMPLATE_ERROR")
