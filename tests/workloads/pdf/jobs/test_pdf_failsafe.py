"""Without a worker: 503 or the HTML, as configured, until a worker is back."""

import json
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kesin.store.errors import StoreUnreachable
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf import FailSafePolicy, check_worker_health, handle_unavailable
from kesin.workloads.pdf.jobs.heartbeat import FRESH_S, Heartbeat
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from tests.web.conftest import error_of
from tests.workloads.pdf.front import Front, at_once, opened_front, order
from tests.workloads.pdf.press import SAMPLE

STRICT, DEGRADE = FailSafePolicy


@pytest.fixture
def lonely(own_front: Front) -> Front:
    """No worker has been alive for long."""
    own_front.clock.advance(FRESH_S + 1)
    return own_front


@pytest.fixture
def lenient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Front]:
    """The same, with the HTML as fallback."""
    with opened_front("sqlite", tmp_path, request, pdf_fail_safe="degrade") as front:
        front.clock.advance(FRESH_S + 1)
        yield front


def test_without_a_worker_new_jobs_are_refused_until_one_is_back(lonely):
    me = lonely.owner()
    response = lonely.post(me)
    assert (response.status_code, response.headers["retry-after"]) == (503, "15")
    assert error_of(response)["code"] == "PDF_RENDER_UNAVAILABLE"
    assert lonely.queue.jobs().jobs == []
    for name in ("one", "another"):
        assert lonely.post(me).status_code == 503
        lonely.beat(name)
        lonely.clock.advance(FRESH_S)
        assert lonely.post(me).status_code == 202
        lonely.clock.advance(0.000_001)


def test_a_stuck_worker_does_not_count_and_is_not_ready(own_front):
    assert own_front.client.get("/health/ready").json()["checks"]["pdf"]["ok"]
    stuck = Heartbeat(own_front.store, "one", lambda: {"stuck": True}, now=own_front.queue.now)
    stuck.beat()
    response = own_front.client.get("/health/ready")
    assert response.status_code == 503
    assert "1 render worker stuck" in response.json()["checks"]["pdf"]["detail"]
    assert own_front.post(own_front.owner()).status_code == 503


def test_the_html_is_sent_if_so_configured(lenient):
    me, body = lenient.owner(), order()
    response = lenient.post(me, body)
    assert (response.status_code, response.headers["x-pdf-fallback"]) == (200, "html")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["cache-control"] == "no-store"
    assert body["variables"]["number"] in response.text
    assert lenient.queue.jobs().jobs == []
    lenient.beat()
    assert lenient.post(me, body).status_code == 202


def test_a_request_may_choose_its_own_policy(lonely, lenient):
    for wait in ({}, {"wait": 2}):
        response = lonely.post(lonely.owner(), order(options={"fail_safe": "degrade"}), **wait)
        assert (response.status_code, response.headers.get("x-pdf-fallback")) == (200, "html")
        response = lenient.post(lenient.owner(), order(options={"fail_safe": "strict"}), **wait)
        assert (response.status_code, response.headers.get("x-pdf-fallback")) == (503, None)


# What HTML would lack, and the names of these fields in the refusal.
PDF_ONLY: list[tuple[dict[str, Any], str]] = [
    ({"then": [{"stamp": {"text": "A"}}]}, "then"),
    ({"attachments": [{"name": "a.txt", "media_type": "text/plain", "data_base64": "YQ=="}]},
     "attachments"),
    ({"einvoice": {"format": "other", "xml_base64": "PGEvPg=="}}, "einvoice"),
    ({"options": {"conformance": "pdf/a-3b"}}, "options.conformance"),
]  # fmt: skip


def test_html_never_takes_the_place_of_what_only_a_pdf_has(lonely, lenient):
    """Asked for by name, that is refused at once; the service's default does not apply to it."""
    for front, (asked, named) in product((lonely, lenient), PDF_ONLY):
        options = {**asked.get("options", {}), "fail_safe": "degrade"}
        response = front.post(front.owner(), order(**{**asked, "options": options}))
        assert response.status_code == 422, named
        [field] = error_of(response)["details"]["fields"]
        assert field["field"] == "options.fail_safe"
        assert field["message"] == f"must not be degrade: HTML cannot replace a PDF that has {named}"
        response = front.post(front.owner(), order(**asked))
        assert (response.status_code, error_of(response)["code"]) == (503, "PDF_RENDER_UNAVAILABLE"), named
    everything = {field: value for asked, _ in PDF_ONLY[:3] for field, value in asked.items()}
    options = {"fail_safe": "degrade", "conformance": "pdf/a-3b"}
    response = lonely.post(lonely.owner(), order(**everything, options=options))
    assert "attachments, einvoice, then, options.conformance" in error_of(response)["message"]


def test_the_html_fallback_is_escaped_and_runs_nothing(lenient):
    evil = "<img src=x onerror=alert(1)>&amp;\"'"
    response = lenient.post(lenient.owner(), order(evil))
    assert "<img src=x" not in response.text
    assert "&lt;img src=x onerror=alert(1)&gt;&amp;amp;&#34;&#39;" in response.text
    assert response.headers["content-security-policy"] == (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "script-src 'none'; frame-ancestors 'none'; sandbox"
    )
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_wrong_request_is_refused_first(lenient):
    me = lenient.owner()
    assert lenient.post(me, {**order(), "template_name": "nothing"}).status_code == 400
    assert lenient.post(me, {**order(), "variables": {}}).status_code == 422
    wrong = {**SAMPLE, "stated_total": "1.00"}  # the lines add up to something else
    response = lenient.post(me, {**order(), "variables": wrong})
    assert (response.status_code, error_of(response)["code"]) == (400, "TEMPLATE_ERROR")


def test_finished_and_waiting_jobs_are_returned_without_a_worker(own_front):
    me, made, waiting = own_front.owner(), order(), order()
    done, queued = own_front.done(me, made), own_front.submit(me, waiting)
    own_front.clock.advance(FRESH_S + 1)
    for body, job_id in ((made, done), (waiting, queued)):
        response = own_front.post(me, body)
        assert (response.status_code, response.json()["job_id"]) == (200, job_id)
    assert own_front.fetch(me, done).status_code == 200
    assert own_front.post(me).status_code == 503


def test_a_store_that_becomes_unreachable_is_like_no_worker(lenient, monkeypatch):
    lenient.beat()
    me = lenient.owner()

    def away(*_: object) -> None:
        raise StoreUnreachable("switched off by the test")

    monkeypatch.setattr(SqliteStore, "ids_by_key", away)
    assert lenient.post(me).headers["x-pdf-fallback"] == "html"
    strict = lenient.post(me, order(options={"fail_safe": "strict"}))
    assert (strict.status_code, error_of(strict)["code"]) == (503, "PDF_RENDER_UNAVAILABLE")


def test_a_commit_of_several_requests_that_fails_is_like_no_worker(lenient, monkeypatch):
    lenient.beat()
    me, writes = lenient.owner(), lenient.service.writes
    transaction, add = writes._directory.transaction, writes._add
    began, waiting = threading.Event(), threading.Semaphore(0)

    class Failing:
        def __enter__(self) -> None:
            self._inner = transaction()
            self._inner.__enter__()

        def __exit__(self, *_: object) -> None:
            away = StoreUnreachable("switched off by the test")
            self._inner.__exit__(StoreUnreachable, away, None)
            raise away

    def hold() -> None:
        began.set()
        for _ in range(2):
            waiting.acquire()

    def noted(call: Any) -> None:
        add(call)
        if call.future is not None:
            waiting.release()

    writes.run_later(hold)
    began.wait()
    monkeypatch.setattr(writes, "_add", noted)
    monkeypatch.setattr(writes._directory, "transaction", Failing)
    responses = at_once([lambda: lenient.post(me), lambda: lenient.post(me)])
    assert [response.headers.get("x-pdf-fallback") for response in responses] == ["html"] * 2
    assert lenient.queue.jobs().jobs == []


def test_no_commit_waits_for_the_storage_of_files(own_front, monkeypatch):
    me, body = own_front.owner(), order()
    done = own_front.done(me, body)
    threads: list[str] = []
    is_lost = PdfArtifactStore.is_lost

    def noted(self: PdfArtifactStore, key: str) -> bool:
        threads.append(threading.current_thread().name)
        return is_lost(self, key)

    monkeypatch.setattr(PdfArtifactStore, "is_lost", noted)
    assert own_front.post(me, body).json()["job_id"] == done
    own_front.burn(done)
    again = own_front.post(me, body)
    assert again.status_code == 202
    assert again.json()["job_id"] != done
    assert threads
    assert not [name for name in threads if name.startswith("kesin-commit")]


def test_an_unreachable_store_reports_no_worker(own_front, monkeypatch):
    now = own_front.queue.now()

    def away(*_: object, **__: object) -> None:
        raise StoreUnreachable("switched off by the test")

    assert check_worker_health(own_front.store, now)
    monkeypatch.setattr("kesin.workloads.pdf.jobs.heartbeat.Directory.metadata_entries", away)
    assert not check_worker_health(own_front.store, now)


def test_the_fallback_is_the_html_or_503():
    for policy, html in ((STRICT, None), (STRICT, "<p>"), (DEGRADE, None)):
        response = handle_unavailable(policy, html)
        assert (response.status_code, response.headers["retry-after"]) == (503, "15")
        assert json.loads(response.body)["error"]["code"] == "PDF_RENDER_UNAVAILABLE"
    response = handle_unavailable(DEGRADE, "<p>ışık</p>")
    assert (response.status_code, response.body) == (200, "<p>ışık</p>".encode())
    assert response.headers["x-pdf-fallback"] == "html"
