"""While nothing renders: 503 or the HTML, as was decided, and back to normal without a hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kesin.store.errors import StoreUnreachable
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf import FailSafePolicy, check_worker_health, handle_unavailable
from kesin.workloads.pdf.jobs.heartbeat import FRESH_S, Heartbeat
from tests.web.conftest import error_of
from tests.workloads.pdf.front import Front, opened_front, order
from tests.workloads.pdf.press import SAMPLE

STRICT, DEGRADE = FailSafePolicy
TWO_S = 2


@pytest.fixture
def lonely(own_front: Front) -> Front:
    """Nobody has been heard of for long."""
    own_front.clock.advance(FRESH_S + 1)
    return own_front


@pytest.fixture
def lenient(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Front]:
    """The same, where the HTML is sent instead."""
    with opened_front("sqlite", tmp_path, request, pdf_fail_safe="degrade") as front:
        front.clock.advance(FRESH_S + 1)
        yield front


def test_while_nobody_renders_new_jobs_are_refused(lonely):
    answer = lonely.post(lonely.owner())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "15")
    assert error_of(answer)["code"] == "PDF_RENDER_UNAVAILABLE"
    assert lonely.queue.jobs().jobs == []


def test_a_worker_counts_for_fifteen_seconds_after_its_last_sign(own_front):
    own_front.clock.advance(FRESH_S)
    assert own_front.post(own_front.owner()).status_code == 202
    own_front.clock.advance(0.000_001)
    assert own_front.post(own_front.owner()).status_code == 503


def test_jobs_are_taken_again_as_soon_as_a_worker_is_back(lonely):
    me = lonely.owner()
    for name in ("one", "another"):
        assert lonely.post(me).status_code == 503
        lonely.beat(name)
        assert lonely.post(me).status_code == 202
        lonely.clock.advance(FRESH_S + 1)


def test_a_worker_that_says_goodbye_does_not_count(own_front):
    beat = Heartbeat(own_front.store, "one", now=own_front.queue.now)
    assert check_worker_health(own_front.store, own_front.queue.now())
    beat.stop()
    assert not check_worker_health(own_front.store, own_front.queue.now())
    assert own_front.post(own_front.owner()).status_code == 503


def test_the_html_is_sent_instead_where_that_was_decided(lenient):
    me, body = lenient.owner(), order()
    answer = lenient.post(me, body)
    assert (answer.status_code, answer.headers["x-pdf-fallback"]) == (200, "html")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert body["variables"]["number"] in answer.text
    assert lenient.queue.jobs().jobs == []
    lenient.beat()
    assert lenient.post(me, body).status_code == 202


@pytest.mark.parametrize("seconds", [None, TWO_S])
def test_a_request_may_decide_otherwise(lonely, lenient, seconds):
    wait = {} if seconds is None else {"wait": seconds}
    answer = lonely.post(lonely.owner(), order(options={"fail_safe": "degrade"}), **wait)
    assert (answer.status_code, answer.headers.get("x-pdf-fallback")) == (200, "html")
    answer = lenient.post(lenient.owner(), order(options={"fail_safe": "strict"}), **wait)
    assert (answer.status_code, answer.headers.get("x-pdf-fallback")) == (503, None)


def test_the_html_in_the_place_of_a_pdf_is_escaped_and_runs_nothing(lenient):
    evil = "<img src=x onerror=alert(1)>&amp;\"'"
    answer = lenient.post(lenient.owner(), order(evil))
    assert "<img src=x" not in answer.text
    assert "&lt;img src=x onerror=alert(1)&gt;&amp;amp;&#34;&#39;" in answer.text
    assert answer.headers["content-security-policy"] == (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "frame-ancestors 'none'; sandbox"
    )
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_is_wrong_with_a_request_is_told_first(lenient):
    me = lenient.owner()
    assert lenient.post(me, {**order(), "template_name": "nothing"}).status_code == 400
    assert lenient.post(me, {**order(), "variables": {}}).status_code == 422


def test_a_template_that_cannot_work_with_the_values_is_the_requests_fault(lenient):
    wrong = {**SAMPLE, "stated_total": "1.00"}  # the lines add up to something else
    answer = lenient.post(lenient.owner(), {**order(), "variables": wrong})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "TEMPLATE_ERROR")


def test_what_is_there_or_on_its_way_is_answered_though_nobody_renders(own_front):
    me, made, waiting = own_front.owner(), order(), order()
    done, queued = own_front.done(me, made), own_front.asked(me, waiting)
    own_front.clock.advance(FRESH_S + 1)
    for body, job_id in ((made, done), (waiting, queued)):
        answer = own_front.post(me, body)
        assert (answer.status_code, answer.json()["job_id"]) == (200, job_id)
    assert own_front.fetch(me, done).status_code == 200
    assert own_front.post(me).status_code == 503


def test_a_store_that_goes_away_in_the_middle_is_as_if_nobody_rendered(lenient, monkeypatch):
    lenient.beat()
    me = lenient.owner()

    def away(*_: object) -> None:
        raise StoreUnreachable("switched off by the test")

    monkeypatch.setattr(SqliteStore, "ids_by_key", away)
    assert lenient.post(me).headers["x-pdf-fallback"] == "html"
    strict = lenient.post(me, order(options={"fail_safe": "strict"}))
    assert (strict.status_code, error_of(strict)["code"]) == (503, "PDF_RENDER_UNAVAILABLE")


def test_a_store_that_does_not_answer_knows_of_no_worker(own_front, monkeypatch):
    now = own_front.queue.now()

    def away(*_: object, **__: object) -> None:
        raise StoreUnreachable("switched off by the test")

    assert check_worker_health(own_front.store, now)
    monkeypatch.setattr("kesin.workloads.pdf.jobs.heartbeat.Directory.metadata_entries", away)
    assert not check_worker_health(own_front.store, now)


@pytest.mark.parametrize(("policy", "html"), [(STRICT, None), (STRICT, "<p>"), (DEGRADE, None)])
def test_without_a_document_or_the_will_to_send_it_the_answer_is_503(policy, html):
    answer = handle_unavailable(policy, html)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "15")
    assert json.loads(answer.body)["error"]["code"] == "PDF_RENDER_UNAVAILABLE"


def test_a_document_is_sent_as_it_is():
    answer = handle_unavailable(DEGRADE, "<p>ışık</p>")
    assert (answer.status_code, answer.body) == (200, "<p>ışık</p>".encode())
    assert answer.headers["x-pdf-fallback"] == "html"
