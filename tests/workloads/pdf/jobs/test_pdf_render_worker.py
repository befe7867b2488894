"""From a job to its PDF, and every way that can fail, with a fake engine."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kesin.store.metadata import metadata_for
from kesin.store.redis.store import RedisStore
from kesin.workloads.pdf.config import PdfRenderConfig
from kesin.workloads.pdf.engines.base import Paper
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed
from kesin.workloads.pdf.jobs.heartbeat import (
    FRESH_S,
    PRUNE_AFTER_S,
    Heartbeat,
    check_worker_health,
    find_stuck_workers,
)
from kesin.workloads.pdf.jobs.store import PdfJobStatus, UnknownJob, read_stats
from kesin.workloads.pdf.jobs.worker import STUCK_AFTER_S, PdfRenderWorker, PdfWorker
from tests.workloads.pdf.press import BOOK, LEASE_S, Press, opened_press, payload


@pytest.fixture
def press(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Press]:
    """On SQLite alone, for what does not depend on the store."""
    with opened_press("sqlite", tmp_path, request) as press:
        yield press


@pytest.fixture(params=["sqlite", "redis"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Press]:
    with opened_press(request.param, tmp_path, request) as press:
        yield press


# One job


def test_a_job_is_rendered_and_stored_with_its_result(either):
    job = either.done()
    assert job.status is PdfJobStatus.SUCCEEDED
    pdf = either.artifacts.get_pdf(job.artifact_key)
    assert pdf.startswith(b"%PDF")
    assert job.artifact_key.startswith(f"pdfs/{job.job_id}/")
    assert job.result == {
        "artifact_key": job.artifact_key,
        "bytes": len(pdf),
        "engine": "quick",
        "pages": 1,
        "seconds": 0.2,
        "sha256": job.result["sha256"],
        "warnings": ["a warning"],
        "missing_glyphs": [],
        "conformance": [],
    }


def test_characters_that_no_font_has_are_kept_with_the_job_or_fail_it(press):
    press.engine.missing = ("字", "漢")
    assert press.done().result["missing_glyphs"] == ["字", "漢"]
    strict = press.jobs.create_job("invoice", payload() | {"missing_glyphs": "fail"})
    press.worker.process_job(strict.job_id)
    failed = press.seen(strict)
    assert (failed.status, failed.error_code) == (PdfJobStatus.FAILED, "MISSING_GLYPHS")
    assert failed.error_message == "no font has these characters: 字 (U+5B57), 漢 (U+6F22)"
    press.engine.missing = ()
    retried = press.jobs.create_job("invoice", payload() | {"missing_glyphs": "fail"})
    press.worker.process_job(retried.job_id)
    assert press.seen(retried).status is PdfJobStatus.SUCCEEDED


def test_paper_and_time_limit_are_those_of_the_request(press):
    request = payload() | {"paper": {"format": "A5", "margin_mm": [1, 2, 3, 4]}}
    for metadata in ({"timeout": 7}, {}):
        job = press.jobs.create_job("invoice", request | {"engine": str(metadata)}, metadata=metadata)
        press.worker.process_job(job.job_id)
    (_, paper, limit_s), (_, _, usual_s) = press.engine.printed
    assert paper == Paper(format="A5", margin_mm=(1, 2, 3, 4))
    assert (limit_s, usual_s) == (7, press.config.hard_timeout)


def test_an_unexpected_error_is_unknown_and_its_text_is_hidden(press):
    def explode() -> None:
        raise LookupError("the password is 1234")

    press.engine.next.append(explode)
    job = press.done()
    assert (job.status, job.error_code, job.error_message) == ("failed", "UNKNOWN", "LookupError")


def test_a_template_that_left_the_list_is_refused_by_the_worker_too(press):
    job = press.ask()
    strict = PdfRenderWorker(
        press.jobs, press.artifacts, PdfRenderConfig(), library=BOOK, engines=lambda _: press.engine
    )
    strict.process_job(job.job_id)
    after = press.seen(job)
    assert (after.status, after.error_code) == ("failed", "TEMPLATE_ERROR")
    assert press.engine.printed == []


def test_variables_or_paper_that_do_not_fit_are_an_error_of_the_template(press):
    job = press.jobs.create_job("invoice", {"variables": {"number": 1}})
    press.worker.process_job(job.job_id)
    after = press.seen(job)
    assert (after.status, after.error_code) == ("failed", "TEMPLATE_ERROR")
    assert "variables" in after.error_message
    job = press.jobs.create_job("invoice", payload() | {"paper": {"colour": "pink"}})
    press.worker.process_job(job.job_id)
    assert press.seen(job).error_code == "TEMPLATE_ERROR"


def test_a_template_that_changed_meanwhile_is_a_warning(press):
    job = press.jobs.create_job("invoice", payload() | {"template_hash": "of last week"})
    press.worker.process_job(job.job_id)
    assert "the template was changed after this PDF was requested" in press.seen(job).result["warnings"]


def test_only_a_waiting_job_is_rendered(either):
    done = either.done()
    either.worker.process_job(done.job_id)
    cancelled = either.ask("B")
    either.queue.act("cancel", actor="o", ids=[cancelled.job_id], role="producer")
    either.worker.process_job(cancelled.job_id)
    assert len(either.engine.printed) == 1
    assert either.seen(done) == done
    with pytest.raises(UnknownJob):
        either.worker.process_job("0199c0de-0000-7000-8000-000000000000")


def test_a_worker_that_lost_its_claim_changes_nothing(either):
    """It slept past its lease: another one has rendered the job meanwhile."""
    job = either.ask()

    def sleep() -> None:
        either.clock.advance(LEASE_S)
        either.sweep()
        either.hire().process_job(job.job_id)

    either.engine.next.append(sleep)
    either.worker.process_job(job.job_id)
    after = either.seen(job)
    first, second = sorted(item.key for item in either.artifacts.storage.list("pdfs"))
    assert after.artifact_key == first
    assert either.moves(job) == ["enqueue", "claim", "lose", "requeue", "claim", "succeed"]
    assert sum(read_stats(metadata_for(either.jobs.queue.store)).buckets) == 1
    either.jobs.cleanup_expired()
    assert [item.key for item in either.artifacts.storage.list("pdfs")] == [first]
    assert second != first


def test_the_methods_of_the_seed_work_by_themselves(press):
    assert press.worker.render_html_to_pdf("<p>x</p>", 5).startswith(b"%PDF")
    assert press.worker.validate_template("invoice")
    assert not press.worker.validate_template("payroll")
    assert not press.worker.validate_url("https://shop.example/")
    assert press.worker.sanitize_payload({"a": "<b>"}) == {"a": "&lt;b&gt;"}


def test_engines_are_made_once_and_closed_at_the_end(press):
    made: list[str | None] = []

    def make(named: str | None) -> Any:
        made.append(named)
        return press.engine

    worker = PdfRenderWorker(press.jobs, press.artifacts, press.config, library=BOOK, engines=make)
    for number in range(3):
        worker.process_job(press.ask(str(number)).job_id)
    worker.close()
    assert made == [None]
    assert press.engine.closed


def test_an_engine_that_cannot_exist_here_is_an_unsupported_platform(press):
    def make(named: str | None) -> Any:
        raise RenderFailed(PdfErrorCode.UNSUPPORTED_PLATFORM, f"no {named}")

    worker = PdfRenderWorker(press.jobs, press.artifacts, press.config, library=BOOK, engines=make)
    job = press.jobs.create_job("invoice", payload() | {"engine": "chromium"})
    worker.process_job(job.job_id)
    after = press.seen(job)
    assert (after.status, after.error_code) == ("failed", "UNSUPPORTED_PLATFORM")
    assert after.retry_count == 0


# The loop


def test_a_worker_renders_every_job_and_counts_it(either):
    jobs = [either.ask(str(n)) for n in range(7)]
    either.engine.fails("TEMPLATE_ERROR")
    assert PdfWorker(either.queue, either.worker).drain() == 7
    assert sorted(either.seen(job).status for job in jobs) == ["failed"] + ["succeeded"] * 6
    numbers = read_stats(metadata_for(either.jobs.queue.store))
    assert (numbers.failures, sum(numbers.buckets)) == ({"TEMPLATE_ERROR": 1}, 6)


def test_a_stopped_worker_releases_its_job_and_is_no_longer_alive(either):
    began, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        assert go_on.wait(20)

    either.engine.next.append(hold)
    job = either.ask()
    worker = PdfWorker(either.queue, either.worker)
    worker.grace_s = 0
    worker.threads = 1
    worker.start()
    assert began.wait(20)
    assert check_worker_health(either.store, either.queue.now())
    worker.stop()
    worker.join()
    after = either.seen(job)
    assert (after.status, after.retry_count) == ("queued", 0)
    assert not check_worker_health(either.store, either.queue.now())
    go_on.set()
    for thread in worker._threads:
        thread.join(20)
    assert either.seen(job).status == "queued"


# Signs of life


def heart(press: Press, name: str = "w1") -> Heartbeat:
    return Heartbeat(press.store, name, lambda: {"done": 3}, now=press.queue.now)


def test_a_worker_silent_for_an_hour_is_forgotten_by_the_next_that_starts(press):
    heart(press, "dead").beat()
    press.clock.advance(PRUNE_AFTER_S + 1)
    fresh = heart(press, "fresh")
    fresh.start()
    assert [entry.name for entry in metadata_for(press.queue.store).metadata_entries("pdf")] == ["worker:fresh"]
    fresh.stop()
    assert metadata_for(press.queue.store).metadata_entries("pdf") == []


def test_a_worker_without_progress_beyond_its_deadline_is_stuck(press):
    worker = PdfWorker(press.queue, press.worker)
    seen = []

    def wait(seconds: float) -> bool:
        press.clock.advance(seconds)
        worker.heartbeat.beat()
        alive = check_worker_health(press.store, press.queue.now())
        seen.append((alive, len(find_stuck_workers(press.queue))))
        return alive

    press.engine.next.append(lambda: [wait(s) for s in (7 + STUCK_AFTER_S, 1)])
    job = press.ask(metadata={"timeout": 7})
    press.worker.process_job(job.job_id)
    wait(0)
    assert seen == [(True, 0), (False, 1), (True, 0)]


def test_a_worker_that_falls_silent_with_a_running_job_is_stuck(either):
    frozen, held = heart(either, "frozen"), either.ask()
    frozen.beat()
    other = heart(either, "other")
    assert either.queue.claim("frozen", limit=1)
    assert find_stuck_workers(either.queue) == []
    fall_silent(either, "frozen")
    other.beat()
    assert find_stuck_workers(either.queue) == ["frozen"]
    either.clock.advance(LEASE_S)
    either.sweep()
    other.beat()
    assert either.seen(held).status == "queued"
    assert find_stuck_workers(either.queue) == []  # others go on with its job
    other.stop()
    assert find_stuck_workers(either.queue) == ["frozen"]  # and no other is there
    frozen.stop()
    assert find_stuck_workers(either.queue) == []


def test_a_silent_worker_is_not_stuck_without_jobs_or_after_its_process_has_ended(press):
    name = f"{socket.gethostname()}-{ended_process()}-0123456789ab"
    for worker in ("idle", name):
        heart(press, worker).beat()
    press.clock.advance(FRESH_S + 1)
    assert find_stuck_workers(press.queue) == []
    here = f"{socket.gethostname()}-{os.getpid()}-0123456789ab"  # a process that exists is frozen
    heart(press, here).beat()
    press.clock.advance(FRESH_S + 1)
    assert find_stuck_workers(press.queue) == [here]
    heart(press, here).stop()
    press.ask()
    assert press.queue.claim(name, limit=1)
    assert find_stuck_workers(press.queue) == []


def fall_silent(press: Press, worker: str) -> None:
    """Let the time pass after which a worker is not heard of; in Redis, its key is over then."""
    press.clock.advance(FRESH_S + 1)
    home = press.store.store_for("pdf")
    if isinstance(home, RedisStore):
        home.client.delete(f"pdf:worker:{worker}")


def ended_process() -> int:
    """The number of a process that exists no more."""
    with subprocess.Popen(["true"]) as process:
        pass
    return process.pid


def test_the_heartbeat_stops_with_the_worker_threads(press, monkeypatch):
    beaten = threading.Event()
    alive = [True]

    class Turns:
        """Stands in for the pauses: the worker dies after the second."""

        def __init__(self) -> None:
            self.left = 4

        def wait(self, _seconds: float) -> bool:
            self.left -= 1
            alive[0] = self.left > 2
            press.clock.advance(5)
            if not self.left:
                beaten.set()
            return self.left == 0

        def set(self) -> None:
            self.left = 0

    beating = Heartbeat(press.store, "w1", alive=lambda: alive[0], now=press.queue.now)
    monkeypatch.setattr(beating, "_stopped", Turns())
    started = press.queue.now()
    beating.start()
    assert beaten.wait(20)
    [fact] = metadata_for(press.queue.store).metadata_entries("pdf")
    assert fact.changed_at == started + 5_000_000


def test_the_heartbeat_goes_on_when_the_store_was_unreachable(press, monkeypatch):
    beating = heart(press)
    with monkeypatch.context() as broken:
        broken.setattr(press.store, "_rows", lambda *_: 1 / 0)
        beating.start()
    beating.beat()
    assert check_worker_health(press.store, press.queue.now())
    beating.stop()
