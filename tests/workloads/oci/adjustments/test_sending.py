"""Adjustments are sent one at a time per conversion, oldest first, and judged by Google's codes."""

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest

from kesin.workloads.oci.google.classify import ADJUSTMENTS, ERROR_TABLE
from kesin.workloads.oci.lifecycle import adjustment_lifecycle
from tests.workloads.oci.action_lists import SALE, give
from tests.workloads.oci.adjustments.adjusting import QUEUE, job, post, queued, row, settle, states, turn
from tests.workloads.oci.fake_adjustments import adjustment_values
from tests.workloads.oci.fake_google import GoogleServer, Whole
from tests.workloads.oci.own_site import DAY, HOUR, MINUTE, ApiSite, OwnSite


def sent(api: ApiSite, count: int = 1) -> list[str]:
    """Conversions that Google has; the leases of their senders are over."""
    ids = api.enqueue(count)
    assert api.turn() == {"COMPLETED": count}
    api.clock.advance(16 * MINUTE)
    return ids


def test_a_restatement_says_no_more_than_google_wants(api: ApiSite, google: GoogleServer):
    [sale] = sent(api)
    [job_id] = queued(api, row(adjustedAt=api.oci.ago(60)), outcome="ready")
    assert turn(api) == {"COMPLETED": 1}
    [adjusted] = google.adjusted
    assert adjusted.pop("adjustmentDateTime")
    assert adjusted == {
        "orderId": api.job(sale).payload["orderId"],
        "conversionAction": google.action,
        "adjustmentType": "RESTATEMENT",
        "restatementValue": {"adjustedValue": 50, "currencyCode": "TRY"},
    }
    assert job(api, job_id).result == {"channel": "api", "requestId": "a-2"}
    assert job(api, job_id).stamp_2  # uploaded_at


def test_a_retraction_has_no_value(api: ApiSite, google: GoogleServer):
    sent(api)
    queued(api, row(kind="RETRACT"), outcome="ready")
    assert turn(api) == {"COMPLETED": 1}
    [adjusted] = google.adjusted
    assert adjusted["adjustmentType"] == "RETRACTION"
    assert adjusted.keys() == {
        "orderId", "conversionAction", "adjustmentType", "adjustmentDateTime",
    }  # fmt: skip


def test_one_at_a_time_and_in_the_order_they_came(api: ApiSite, google: GoogleServer):
    sent(api)
    rows = [row(adjustmentId=f"a{n}", value=n) for n in (1, 2, 3)]
    results = post(api, *rows)
    assert [one["outcome"] for one in results] == ["ready", "waits", "waits"]
    for n in (1, 2, 3):
        assert [one["restatementValue"]["adjustedValue"] for one in google.adjusted] == [*range(1, n)]
        assert settle(api) == {"COMPLETED": 1}
    assert len({one["adjustmentDateTime"] for one in google.adjusted}) == 3
    assert settle(api) == {}


def test_what_is_stuck_holds_up_no_other(api: ApiSite, google: GoogleServer):
    sent(api, 2)
    google.adjustment_errors = lambda one: ["CONVERSION_NOT_FOUND"] if one["orderId"] == first["orderId"] else []
    first = job(api, queued(api, row(1), outcome="ready")[0]).payload
    queued(api, row(2), outcome="ready")
    assert turn(api) == {"COMPLETED": 1, "RETRY": 1}
    [waits] = queued(api, row(1, adjustmentId="a2"), outcome="waits")
    settle(api)
    assert states(api, [waits]) == ["WAITING"]


def verdict(value: str) -> str:
    """The state after one try, by the table."""
    names = {"COMPLETE": "COMPLETED", "WAIT": "RETRY"}
    group = ERROR_TABLE[ADJUSTMENTS]
    meaning = group.values[value]
    if meaning.verdict:
        return names[meaning.verdict.name]
    return "RETRY" if meaning.category.value in ("TRANSIENT", "RATE_LIMIT") else "FAILED"


def test_every_value_of_googles_enum_is_in_the_table_and_ends_as_it_says(api: ApiSite, google: GoogleServer):
    values = [value for value in adjustment_values() if value != "UNSPECIFIED"]
    assert {*values, "UNSPECIFIED"} == set(ERROR_TABLE[ADJUSTMENTS].values)
    sales = sent(api, len(values))
    codes = {api.job(sale).payload["orderId"]: v for sale, v in zip(sales, values, strict=True)}
    google.adjustment_errors = lambda one: [codes[one["orderId"]]]
    rows = [row(n) for n in range(1, len(values) + 1)]
    ids = queued(api, *rows, outcome="ready")
    turn(api)
    for job_id, value in zip(ids, values, strict=True):
        found = job(api, job_id)
        assert (value, found.state) == (value, verdict(value))
        assert found.error_code == value[:64]
    assert api.breaker().kind == ""


def test_what_google_does_not_find_is_given_two_days_and_costs_no_attempt(api: ApiSite, google: GoogleServer):
    sent(api)
    google.adjustment_errors = lambda _: ["CONVERSION_NOT_FOUND"]
    [job_id] = queued(api, row(), outcome="ready")
    for _ in range(8):
        assert turn(api) == {"RETRY": 1}
        found = job(api, job_id)
        assert found.attempts_left == found.max_attempts
        api.clock.advance(6 * HOUR + 1)
    assert turn(api) == {"FAILED": 1}
    assert job(api, job_id).error_code == "CONVERSION_NOT_FOUND"


def test_a_site_left_to_a_script_is_warned_of_adjustments_that_are_ready(api: ApiSite):
    sent(api)
    api.change(channel="script")
    queued(api, row(), outcome="ready")
    assert api.warnings() == ["ADJUSTMENTS_READY"]
    api.change(channel="api")
    assert api.warnings() == []


@pytest.mark.parametrize("change", [{"lookback_days": 30}, {"consent_required": True}])
def test_a_fix_of_what_google_took_is_taken_as_its_adjustment_is(
    api: ApiSite, google: GoogleServer, change: dict[str, Any]
):
    if "lookback_days" in change:
        give(api, {**SALE, **change})
        change = {}
    [sale] = sent(api)
    api.change_settings(**change)
    api.clock.advance(40 * DAY)
    fixed = api.act("ENQUEUE_FIX", [sale], taken=True, conversion={"conversionValue": 7})
    assert fixed["affected"] == 1, fixed
    assert settle(api) == {"COMPLETED": 1}
    assert google.adjusted[-1]["restatementValue"]["adjustedValue"] == 7


def test_our_earlier_try_counts(api: ApiSite, google: GoogleServer):
    sent(api)
    [job_id] = queued(api, row(), outcome="ready")
    google.then(Whole(503))
    assert turn(api) == {"RETRY": 1}
    google.adjustment_errors = lambda _: ["RESTATEMENT_ALREADY_EXISTS"]
    api.clock.advance(HOUR)
    assert turn(api) == {"COMPLETED": 1}
    assert job(api, job_id).error_code == "RESTATEMENT_ALREADY_EXISTS"


def test_after_54_days_it_is_given_up(api: ApiSite):
    [sale] = api.enqueue(conversionTime=api.oci.ago(50 * DAY))
    api.turn()
    queue = api.oci.service.queues[QUEUE]
    [ready] = queued(api, row(kind="RETRACT"), outcome="waits")
    settle(api, 0)
    api.clock.advance(5 * DAY)
    for move in queue.lifecycle.scheduled_moves:
        queue.sweep(move)
    found = job(api, ready)
    assert (found.state, found.error_code) == ("FAILED", "CONVERSION_EXPIRED")
    assert api.state(sale) == "COMPLETED"


def test_data_manager_gets_the_whole_event_with_the_new_value(make_api: Callable[..., ApiSite], google: GoogleServer):
    site = make_api("data_manager")
    [sale] = sent(site)
    order = site.job(sale).payload["orderId"]
    before = dict(google.recorded[order])
    [job_id] = queued(site, row(value=0, currency="EUR"), outcome="ready")
    assert turn(site) == {"COMPLETED": 1}
    assert google.recorded[order] == {**before, "conversionValue": 0, "currency": "EUR"}
    assert len(google.recorded_for[order]) == 1
    assert "requestId" in job(site, job_id).result


def test_a_channel_that_knows_no_retraction_fails_it_with_the_reason(api: ApiSite, google: GoogleServer):
    sent(api)
    [job_id] = queued(api, row(kind="RETRACT"), outcome="ready")
    api.switch("data_manager")
    came = len(google.came)
    turn(api)
    found = job(api, job_id)
    assert (found.state, found.error_code) == ("FAILED", "RETRACT_NOT_POSSIBLE")
    assert len(google.came) == came


def test_a_paused_site_sends_none(api: ApiSite, google: GoogleServer):
    sent(api)
    queued(api, row(), outcome="ready")
    api.pause()
    assert turn(api) == {}
    api.resume()
    assert turn(api) == {"COMPLETED": 1}


def test_one_retried_after_a_later_one_was_sent_is_overtaken(api: ApiSite, google: GoogleServer):
    sent(api)
    google.adjustment_errors = lambda _: ["TOO_MANY_ADJUSTMENTS"]
    [first] = queued(api, row(value=1), outcome="ready")
    assert turn(api) == {"FAILED": 1}
    google.adjustment_errors = lambda _: []
    queued(api, row(adjustmentId="a2", value=2), outcome="ready")
    assert turn(api) == {"COMPLETED": 1}
    queue = api.oci.service.queues[QUEUE]
    queue.act("RETRY_SELECTED", actor="tests", ids=[first])
    assert states(api, [first]) == ["WAITING"]
    settle(api)
    found = job(api, first)
    assert (found.state, found.error_code) == ("FAILED", "MORE_RECENT_RESTATEMENT_FOUND")
    assert len(google.adjusted) == 1


# Files


def file_of(site: OwnSite) -> list[list[str]]:
    answer = site.request("GET", f"adjustments.csv?siteId={site.id}", site.reader)
    assert answer.status_code == 200, answer.text
    return list(csv.reader(io.StringIO(answer.text)))


def test_a_scripts_site_hands_out_a_file_and_a_person_marks_it_sent(site: OwnSite):
    site.enqueue(conversionName="=Phone, sale")
    site.enqueue(first=2)
    ids = [one["id"].removeprefix("seal_") for one in site.export()]
    site.ack(ids)
    site.clock.advance(16 * MINUTE)
    made = queued(site, row(1, value="10.5"), row(2, "RETRACT"), outcome="ready")
    assert turn(site) == {}
    [header, first, second] = file_of(site)
    assert header == [
        "Order ID", "Conversion Name", "Adjustment Time", "Adjustment Type", "Adjusted Value",
        "Adjusted Value Currency",
    ]  # fmt: skip
    assert first[1].startswith("'=Phone")
    assert first[3:] == ["RESTATE", "10.5", "TRY"]
    assert second[3:] == ["RETRACT", "", ""]
    assert second[0] == site.job(ids[1]).payload["orderId"]
    assert second[2][-5] in "+-"
    assert len(second[2]) == len("2026-03-01 14:05:00+0300")
    queue = site.oci.service.queues[QUEUE]
    queue.act("MARK_SENT", actor="tests", ids=made)
    assert states(site, made) == ["COMPLETED"] * 2
    assert file_of(site) == [header]


# Fixes


def fix(site: OwnSite, sale: str, **fields: Any) -> dict[str, Any]:
    return site.act("ENQUEUE_FIX", [sale], **fields)


def test_what_google_took_is_restated_and_what_it_refused_is_sent_again(api: ApiSite, google: GoogleServer):
    [sale] = sent(api)
    for _ in range(2):
        changed = fix(api, sale, taken=True, conversion={"conversionValue": 77})
    assert changed["affected"] == 0
    assert turn(api) == {"COMPLETED": 1}
    assert [one["restatementValue"]["adjustedValue"] for one in google.adjusted] == [77]
    assert len(api.jobs()) == 1
    [other] = fix(api, sale, taken=True, conversion={"gclid": "another_click"})["refused"]
    assert "not a new gclid" in other["reason"]
    [adjusted] = fix(api, sale, conversion={"conversionValue": 5})["refused"]
    assert "adjust it again" in adjusted["reason"]
    assert len(api.jobs()) == 1


def test_the_budget_of_an_adjustment_is_that_of_its_channel(api: ApiSite):
    sent(api)
    [job_id] = queued(api, row(), outcome="ready")
    assert job(api, job_id).max_attempts == 8
    assert adjustment_lifecycle().max_attempts == 5
