"""What goes wrong with adjustments stays with them, and none is lost, stuck or overtaken."""

from collections.abc import Callable
from typing import Any

import pytest

from kesin.workloads.oci import adjustments
from kesin.workloads.oci.google.circuit_breaker import read_breaker
from tests.workloads.oci.action_lists import SALE, give
from tests.workloads.oci.adjustments.adjusting import QUEUE, job, post, queued, row, settle, states, turn
from tests.workloads.oci.adjustments.test_sending import file_of, fix, sent
from tests.workloads.oci.fake_google import GoogleServer, Whole
from tests.workloads.oci.own_site import DAY, HOUR, MINUTE, ApiSite, OwnSite


def test_an_account_that_takes_no_adjustments_still_takes_conversions(api: ApiSite, google: GoogleServer):
    sent(api)
    google.adjustment_errors = lambda _: ["CUSTOMER_NOT_ACCEPTED_CUSTOMER_DATA_TERMS"]
    [job_id] = queued(api, row(), outcome="ready")
    assert turn(api) == {"FAILED": 1}
    assert api.breaker().kind == ""
    assert read_breaker(adjustments.beside(api.place)).kind == "AUTH"
    api.enqueue(first=2)
    assert api.turn() == {"COMPLETED": 1}
    api.clock.advance(16 * MINUTE)
    google.adjustment_errors = lambda _: []
    queue = api.oci.service.queues[QUEUE]
    queue.act("RETRY_SELECTED", actor="tests", ids=[job_id])
    assert settle(api) == {"COMPLETED": 1}  # the check passed, and it is tried again
    assert read_breaker(adjustments.beside(api.place)).kind == ""


def test_what_google_refuses_for_the_account_holds_all_adjustments_until_it_takes_one(
    api: ApiSite, google: GoogleServer
):
    sent(api, 5)
    ids = queued(api, *(row(n) for n in range(1, 6)), outcome="ready")
    queue = api.oci.service.queues[QUEUE]
    queue.act("MARK_FAILED", actor="tests", ids=ids[1:])
    google.adjustment_errors = lambda _: ["CUSTOMER_NOT_ACCEPTED_CUSTOMER_DATA_TERMS"]
    assert turn(api) == {"FAILED": 1}
    queue.act("RETRY_SELECTED", actor="tests", ids=ids[1:])
    for _ in range(3):
        assert settle(api, 2 * HOUR) == {}
    assert set(states(api, ids[1:])) == {"READY"}
    google.adjustment_errors = lambda _: []
    assert settle(api, 2 * HOUR) == {"COMPLETED": 4}
    assert len(google.adjusted) == 4  # the checks record nothing


def test_settings_for_new_rows_hold_up_no_adjustment_of_earlier_ones(make_api: Callable[..., ApiSite]):
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"consent_required": True}, {}),
        ({"enhanced": False}, {"gclid": None, "email": "a@example.com"}),
        ({"conversion_name": "Renamed"}, {}),
        ({"actions": [{**SALE, "counting": "ONE_PER_CLICK"}]}, {"gclid": None, "gbraid": "0AAAAA-gbraid"}),
    ]
    sites = []
    for number, (change, click) in enumerate(cases):
        sites.append(api := make_api())
        if "actions" in change:
            give(api, SALE)
        api.change_settings(enhanced=True)
        api.post([api.row(number, **click)])
    assert sites[0].turn() == {"COMPLETED": 4}
    for number, (api, (change, _)) in enumerate(zip(sites, cases, strict=True)):
        api.change_settings(**change)
        queued(api, row(number, "RETRACT"), outcome="waits")
    assert settle(sites[0]) == {"COMPLETED": 4}


def test_adjustments_that_go_through_do_not_close_the_breaker_of_conversions(api: ApiSite, google: GoogleServer):
    sent(api)
    [job_id] = queued(api, row(), outcome="ready")
    api.put_credentials(refresh_token="revoked")
    api.enqueue(first=2)
    api.turn()
    assert api.breaker().kind == "AUTH"
    assert turn(api) == {}  # held with the conversions, no attempt is spent
    assert states(api, [job_id]) == ["READY"]
    api.clock.advance(MINUTE)
    api.put_credentials()
    assert turn(api) == {"COMPLETED": 1}


def test_one_tried_before_the_site_moved_to_a_script_is_in_the_file(api: ApiSite, google: GoogleServer):
    sent(api)
    [job_id] = queued(api, row(), outcome="ready")
    google.then(Whole(503))
    assert turn(api) == {"RETRY": 1}
    api.change(channel="script")
    settle(api, HOUR)
    [_, line] = file_of(api)
    assert line[3:] == ["RESTATE", "50", "TRY"]
    api.oci.service.queues[QUEUE].act("MARK_SENT", actor="tests", ids=[job_id])
    assert states(api, [job_id]) == ["COMPLETED"]


def test_one_in_flight_is_not_marked_failed_so_that_none_overtakes_it(api: ApiSite, google: GoogleServer):
    sent(api)
    [first] = queued(api, row(), outcome="ready")
    [second] = queued(api, row(adjustmentId="a2"), outcome="waits")
    queue = api.oci.service.queues[QUEUE]
    [claimed] = queue.claim("another worker", limit=1, tenants=[api.id], lease_seconds=1_000)
    assert claimed.id == first
    queue.act("MARK_FAILED", actor="tests", ids=[first])
    turn(api)
    assert states(api, [first, second]) == ["PROCESSING", "WAITING"]
    assert google.adjusted == []


def test_a_value_there_and_back_is_restated_each_time(api: ApiSite, google: GoogleServer):
    [sale] = sent(api)
    affected = []
    for value in (120, 120, 101, 120):
        done = fix(api, sale, taken=True, conversion={"conversionValue": value})
        affected.append(done["affected"])
        settle(api)
    assert affected == [1, 0, 1, 1]
    values = [one["restatementValue"]["adjustedValue"] for one in google.adjusted]
    assert values == [120, 101, 120]


def test_a_fix_of_the_value_keeps_the_currency_that_was_restated(api: ApiSite, google: GoogleServer):
    [sale] = sent(api)
    queued(api, row(value=50, currency="EUR"), outcome="ready")
    fix(api, sale, taken=True, conversion={"conversionValue": 60})
    settle(api)
    settle(api)
    restated = [one["restatementValue"] for one in google.adjusted]
    assert [one["adjustedValue"] for one in restated] == [50, 60]
    assert {one["currencyCode"] for one in restated} == {"EUR"}


def test_a_change_before_the_first_claim_does_not_stop_a_revision(api: ApiSite):
    [sale] = api.enqueue()
    queued(api, row(), outcome="corrected")
    api.turn()
    assert fix(api, sale, conversion={"conversionValue": 5})["affected"] == 1


def test_a_retraction_that_failed_stops_no_other_adjustment_of_the_same_call(api: ApiSite, google: GoogleServer):
    sent(api)
    google.adjustment_errors = lambda _: ["TOO_MANY_ADJUSTMENTS"]
    [failed] = queued(api, row(kind="RETRACT"), outcome="ready")
    assert turn(api) == {"FAILED": 1}
    again, other = post(api, row(kind="RETRACT"), row(adjustmentId="a2"))
    assert (again["result"], again["id"]) == ("duplicate", failed)
    assert (other["result"], other["outcome"]) == ("queued", "ready")


def test_two_restatements_of_one_second_are_not_taken_for_one(api: ApiSite):
    """Google says of the second that it has it, whatever its value."""
    sent(api)
    at = api.oci.ago(60)
    queued(api, row(adjustedAt=at), outcome="ready")
    [same, later] = post(api, row(adjustmentId="a2", adjustedAt=at), row(adjustmentId="a3", adjustedAt=api.oci.ago(59)))
    assert (same["result"], same["code"]) == ("rejected", "MORE_RECENT_RESTATEMENT_FOUND")
    assert same["field"] == "adjustedAt"
    assert (later["result"], later["outcome"]) == ("queued", "waits")


def test_a_currency_may_have_any_case_as_that_of_a_conversion(site: OwnSite):
    [sale] = site.enqueue()
    queued(site, row(currency=" eur "), outcome="corrected")
    assert site.job(sale).payload["conversionCurrency"] == "EUR"


def test_what_was_put_into_the_queue_by_hand_is_refused_and_stops_no_other(api: ApiSite, neighbour: OwnSite):
    [foreign] = neighbour.claim()
    sent(api)
    queue = api.oci.service.queues[QUEUE]
    run_at = queue.now() + DAY * 1_000_000
    payloads: list[Any] = [7, {"conversionId": "x"}, {"conversionId": foreign, "type": "RETRACT"}]
    ids = [queue.enqueue(each, tenant=api.id, run_at=run_at).id for each in payloads]
    queued(api, row(), outcome="ready")
    assert turn(api) == {"COMPLETED": 1}
    assert states(api, ids) == ["FAILED"] * 3
    assert {job(api, job_id).error_code for job_id in ids} == {"UNKNOWN_CONVERSION"}
    assert neighbour.oci.queue.notes(foreign) == []


def test_many_adjustments_of_one_sale_are_looked_up_once_a_turn(api: ApiSite, monkeypatch: pytest.MonkeyPatch):
    [sale] = sent(api)
    looked_up: list[Any] = []
    find_siblings = adjustments.siblings

    def counted(place: Any, ids: Any) -> Any:
        looked_up.extend(each for each in ids if each == sale)
        return find_siblings(place, ids)

    monkeypatch.setattr(adjustments, "siblings", counted)
    post(api, *(row(adjustmentId=f"a{n}", value=n) for n in range(60)))
    assert len(looked_up) <= 4
    looked_up.clear()
    turn(api)
    assert len(looked_up) <= 2


def test_what_can_only_wait_takes_no_lock(site: OwnSite, monkeypatch: pytest.MonkeyPatch):
    site.claim()
    queued(site, row(), outcome="waits")
    monkeypatch.setattr(adjustments, "siblings", None)
    before = site.place.read_metadata("adjustments")
    assert turn(site) == {}
    assert site.place.read_metadata("adjustments") == before


def test_cron_settles_and_sends_adjustments_too(api: ApiSite, google: GoogleServer):
    sent(api)
    [job_id] = queued(api, row(), outcome="ready")
    assert api.cron("process-offline-conversions")["completed"] >= 1
    assert states(api, [job_id]) == ["COMPLETED"]
    assert len(google.adjusted) == 1


@pytest.mark.parametrize("channel", ["api", "data_manager"])
def test_each_restatement_goes_to_the_action_of_its_sale(
    make_api: Callable[..., ApiSite], google: GoogleServer, channel: str
):
    lead = {"name": "Lead", "id": "11"}
    google.actions = [{"id": "11", "name": "Lead"}]
    site = make_api(channel)
    give(site, SALE, lead)
    ids = [*site.enqueue(), *site.enqueue(first=2, conversionName="Lead")]
    assert site.turn() == {"COMPLETED": 2}
    site.clock.advance(16 * MINUTE)
    queued(site, row(1, value=1), row(2, value=2), outcome="ready")
    assert turn(site) == {"COMPLETED": 2}
    orders = [site.job(each).payload["orderId"] for each in ids]
    if channel == "api":
        got = {one["orderId"]: one["conversionAction"].rpartition("/")[2] for one in google.adjusted}
        assert got == dict(zip(orders, ["987654321", "11"], strict=True))
    else:
        assert [google.recorded[order]["conversionValue"] for order in orders] == [1, 2]
        actions = [{*map(str, google.recorded_for[order])} for order in orders]
        assert len(actions[0] | actions[1]) == 2
        assert actions[0].isdisjoint(actions[1])


def test_an_adjustment_goes_to_the_action_of_its_sale_though_the_site_has_it_no_more(
    make_api: Callable[..., ApiSite], google: GoogleServer
):
    google.actions = [{"id": "11", "name": "Lead"}]
    site = make_api("api")
    give(site, SALE, {"name": "Lead", "id": "11"})
    [sale] = site.enqueue(conversionName="Lead")
    assert site.turn() == {"COMPLETED": 1}
    give(site, SALE)
    queued(site, row(value=2), outcome="waits")
    settle(site)
    assert google.adjusted[-1]["conversionAction"].endswith("/11")
    fix = {"conversionValue": 3}
    assert site.act("ENQUEUE_FIX", [sale], conversion=fix, taken=True)["affected"] == 1
