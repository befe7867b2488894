"""Failures around an upload that must not lose a row."""

import threading
from typing import Any

import pytest

from kesin.store.errors import StoreUnreachable
from kesin.workloads.oci import OCI, uploader
from kesin.workloads.oci.conversions.corrections import fix_rows
from kesin.workloads.oci.google import circuit_breaker
from kesin.workloads.oci.google.connection_check import channels_of
from kesin.workloads.oci.uploader import Uploader
from tests.web.conftest import ROOT
from tests.workloads.oci.fake_google import GoogleServer, Whole, upload_error
from tests.workloads.oci.own_site import DAY, HOUR, ApiSite


def test_what_google_took_is_completed_even_if_the_breaker_cannot_be_told(
    api: ApiSite, monkeypatch: pytest.MonkeyPatch
):
    ids = api.enqueue(3)

    def away(*_: object, **__: object) -> None:
        raise StoreUnreachable("away")

    monkeypatch.setattr(circuit_breaker, "record_upload", away)
    assert api.turn() == {"COMPLETED": 3}
    assert api.states(ids) == ["COMPLETED"] * 3


def test_a_fault_of_our_own_is_tried_again(api: ApiSite, monkeypatch: pytest.MonkeyPatch):
    ids = api.enqueue(2)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Uploader, "_job_result", broken)
    assert api.turn() == {"RETRY": 2}
    assert api.states(ids) == ["RETRY"] * 2


def test_rows_that_cannot_be_sent_say_nothing_about_the_connection(
    api: ApiSite, google: GoogleServer, monkeypatch: pytest.MonkeyPatch
):
    # Enqueued without ingest.
    monkeypatch.setattr(uploader, "reject_unsendable", lambda *_, **__: 0)
    google.then(*[Whole(503)] * 5)
    api.enqueue(1)
    for _ in range(5):
        api.turn()
        api.clock.advance(DAY + HOUR)
    api.sweep("expire")
    api.act("MARK_FAILED", None, filter={"status": ["RETRY", "QUEUED"]})
    bad = api.enqueue_raw({"externalId": "x"}, key="x")
    assert api.turn() == {"FAILED": 1}
    assert api.states([bad]) == ["FAILED"]
    assert api.breaker().kind == "TRANSIENT"


def test_google_failing_inside_every_row_opens_the_breaker_too(api: ApiSite, google: GoogleServer):
    api.enqueue(2)
    google.row_errors = lambda _row: [upload_error("UNPARSEABLE_GCLID")._replace(
        group="internal_error", value="INTERNAL_ERROR")]  # fmt: skip
    for _ in range(5):
        api.turn()
        api.clock.advance(DAY + HOUR)
    assert api.breaker().kind == "TRANSIENT"


def test_a_site_whose_breaker_is_open_takes_no_share_of_a_limited_turn(api: ApiSite, google: GoogleServer, make_api):
    api.enqueue(10)
    google.then(Whole(403, {"error": {"code": 403, "message": "no"}}))
    api.cron("process-offline-conversions", limit=2)
    make_api().enqueue(6, first=500)
    assert api.breaker().kind == "AUTH"
    body = api.cron("process-offline-conversions", limit=4)
    assert body["completed"] == 4


def test_rows_that_are_not_due_take_no_share_either(api: ApiSite, google: GoogleServer, make_api):
    api.enqueue(10)
    google.then(Whole(503))
    api.turn()
    make_api().enqueue(6, first=500)
    assert api.cron("process-offline-conversions", limit=4)["completed"] == 4


def test_a_click_google_knows_from_elsewhere_counts_as_delivered(api: ApiSite, google: GoogleServer):
    ids = api.enqueue(1)
    google.row_errors = lambda _row: [upload_error("CLICK_CONVERSION_ALREADY_EXISTS")]
    assert api.turn() == {"COMPLETED": 1}
    assert api.row_of(ids[0])["provider_error_code"] == "CLICK_CONVERSION_ALREADY_EXISTS"


def test_a_site_is_served_by_one_lane_at_a_time(api: ApiSite):
    api.enqueue(3)
    uploader = Uploader(api.context, channels_of(api.oci.settings))
    first: Any = uploader.plan_claims()
    assert [share.tenants for share in [next(first)]] == [(api.id,)]
    assert list(uploader.plan_claims()) == []
    first.close()
    assert [share.tenants for share in uploader.plan_claims()] == [(api.id,)]


def test_without_httpx_the_service_starts_and_leaves_uploads_alone(api: ApiSite, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "httpx", None)
    channels_of.cache_clear()
    ids = api.enqueue(1)
    assert OCI.worker is not None
    worker = OCI.worker(api.context)
    assert worker.run_once() == {}
    assert api.states(ids) == ["QUEUED"]


def test_a_renewed_budget_follows_the_channel_of_the_site(api: ApiSite):
    api.switch("script")
    ids = api.enqueue(1)
    api.switch("api")
    api.act("MARK_FAILED", ids)
    api.act("RETRY_SELECTED", ids)
    assert api.job(ids[0]).max_attempts == 8


def test_two_fixes_of_one_row_at_once_make_one_revision(api: ApiSite):
    api.enqueue(1)
    api.turn()
    place, results = api.place, []
    meet = threading.Barrier(2)

    def mend(value: int) -> None:
        meet.wait(20)
        row = {"externalId": "sale-1", "conversionValue": value}
        results.append((value, fix_rows(place, ROOT, [row])[0]))

    threads = [threading.Thread(target=mend, args=(value,)) for value in (5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    by_result = {result.result: (value, result.id) for value, result in results}
    assert set(by_result) == {"queued", "duplicate"}
    value, job_id = by_result["queued"]
    assert api.job(job_id or "").payload["conversionValue"] == value
