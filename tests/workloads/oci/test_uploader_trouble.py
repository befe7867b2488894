"""Failures around an upload that must not lose a row."""

import threading

import pytest

from kesin.store.errors import StoreUnreachable
from kesin.workloads.oci import OCI, uploader
from kesin.workloads.oci.conversions.corrections import fix_rows
from kesin.workloads.oci.google import channels
from kesin.workloads.oci.google.channels import channels_of
from kesin.workloads.oci.uploader import Uploader
from tests.web.conftest import ROOT
from tests.workloads.oci.conftest import DAY, HOUR, OTHER, SITE, ApiSites
from tests.workloads.oci.fake_google import GoogleServer, Whole, upload_error

pytestmark = pytest.mark.usefixtures("_quick_hashes")


def test_what_google_took_is_completed_even_if_the_breaker_cannot_be_told(
    api: ApiSites, monkeypatch: pytest.MonkeyPatch
):
    ids = api.queued(3)

    def away(*_: object, **__: object) -> None:
        raise StoreUnreachable("away")

    monkeypatch.setattr(uploader, "record_upload", away)
    assert api.turn() == {"COMPLETED": 3}
    assert api.states(ids) == ["COMPLETED"] * 3


def test_a_fault_of_our_own_is_tried_again(api: ApiSites, monkeypatch: pytest.MonkeyPatch):
    ids = api.queued(2)

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Uploader, "_job_result", broken)
    assert api.turn() == {"RETRY": 2}
    assert api.states(ids) == ["RETRY"] * 2


def test_rows_that_cannot_be_sent_say_nothing_about_the_connection(
    api: ApiSites, google: GoogleServer, monkeypatch: pytest.MonkeyPatch
):
    # Enqueued without ingest.
    monkeypatch.setattr(uploader, "reject_unsendable", lambda *_, **__: 0)
    google.then(*[Whole(503)] * 5)
    api.queued(1)
    for _ in range(5):
        api.turn()
        api.clock.advance(DAY + HOUR)
    api.sweep("expire")
    api.act("MARK_FAILED", None, filter={"status": ["RETRY", "QUEUED"]})
    bad = api.raw({"externalId": "x"}, key="x")
    assert api.turn() == {"FAILED": 1}
    assert api.states([bad]) == ["FAILED"]
    assert api.breaker().kind == "TRANSIENT"


def test_google_failing_inside_every_row_opens_the_breaker_too(api: ApiSites, google: GoogleServer):
    api.queued(2)
    google.row_errors = lambda _row: [upload_error("UNPARSEABLE_GCLID")._replace(
        group="internal_error", value="INTERNAL_ERROR")]  # fmt: skip
    for _ in range(5):
        api.turn()
        api.clock.advance(DAY + HOUR)
    assert api.breaker().kind == "TRANSIENT"


def test_a_site_whose_breaker_is_open_takes_no_share_of_a_limited_turn(
    api: ApiSites, google: GoogleServer
):
    api.switch("api", site=OTHER)
    api.queued(100)
    api.queued(30, site=OTHER, first=500)
    google.then(Whole(403, {"error": {"code": 403, "message": "no"}}))
    api.queue.pause(actor="ops", tenant=OTHER)
    api.cron("process-offline-conversions", limit=5)
    api.queue.resume(tenant=OTHER)
    assert api.breaker().kind == "AUTH"
    body = api.cron("process-offline-conversions", limit=20)
    assert body["completed"] == 20


def test_rows_that_wait_for_their_time_take_no_share_either(api: ApiSites, google: GoogleServer):
    api.switch("api", site=OTHER)
    api.queued(100)
    google.then(Whole(503))
    api.turn()
    api.queued(30, site=OTHER, first=500)
    assert api.cron("process-offline-conversions", limit=20)["completed"] == 20


def test_a_click_google_knows_from_elsewhere_counts_as_delivered(
    api: ApiSites, google: GoogleServer
):
    ids = api.queued(1)
    google.row_errors = lambda _row: [upload_error("CLICK_CONVERSION_ALREADY_EXISTS")]
    assert api.turn() == {"COMPLETED": 1}
    assert api.shown(ids[0])["provider_error_code"] == "CLICK_CONVERSION_ALREADY_EXISTS"


def test_a_site_is_served_by_one_lane_at_a_time(api: ApiSites):
    api.queued(3)
    one = Uploader(api.context, channels_of(api.settings))
    first = one.plan()
    assert [share.tenants for share in [next(first)]] == [(SITE,)]
    assert list(one.plan()) == []
    first.close()
    assert [share.tenants for share in one.plan()] == [(SITE,)]


def test_without_httpx_the_service_starts_and_leaves_uploads_alone(
    api: ApiSites, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(__import__("sys").modules, "httpx", None)
    channels.channels_of.cache_clear()
    ids = api.queued(1)
    assert OCI.worker is not None
    worker = OCI.worker(api.context)
    assert worker.run_once() == {}
    assert api.states(ids) == ["QUEUED"]


def test_a_renewed_budget_follows_the_channel_of_the_site(api: ApiSites):
    ids = api.queued(1, site=OTHER)
    api.switch("api", site=OTHER)
    api.queue.act("MARK_FAILED", actor="ops", ids=ids)
    body = {"siteId": OTHER, "action": "RETRY_SELECTED", "ids": ids}
    assert api.client.post("/api/oci/queue-actions", json=body, headers=api.operator).is_success
    assert api.look(ids[0]).max_attempts == 8


def test_two_fixes_of_one_row_at_once_make_one_revision(api: ApiSites):
    api.queued(1)
    api.turn()
    place, told = api.place(), []
    meet = threading.Barrier(2)

    def mend(value: int) -> None:
        meet.wait(20)
        row = {"externalId": "sale-1", "conversionValue": value}
        told.append((value, fix_rows(api.context, ROOT, place, [row])[0]))

    threads = [threading.Thread(target=mend, args=(value,)) for value in (5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    results = {one.result: (value, one.id) for value, one in told}
    assert set(results) == {"queued", "duplicate"}
    value, job_id = results["queued"]
    assert api.look(job_id or "").data["conversionValue"] == value
