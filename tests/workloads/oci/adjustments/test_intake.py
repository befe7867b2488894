"""Adjustments are queued, duplicates, or rejected by name; unclaimed conversions change here."""

import pytest

from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.oci import adjustments
from tests.workloads.oci.adjustments.adjusting import job, post, queued, row, settle, states, turn
from tests.workloads.oci.own_site import DAY, HOUR, MINUTE, Oci, OwnSite, bare


@pytest.fixture
def sold(site: OwnSite) -> str:
    """A conversion that Google has."""
    [job_id] = site.claim()
    site.ack([job_id])
    return job_id


REFUSED = {
    "no currency": (row(currency=["TRY"]), "INVALID_CURRENCY", "currency"),
    "currency of another kind": (row(currency=7), "INVALID_CURRENCY", "currency"),
    "unknown currency": (row(currency="XYZ"), "INVALID_CURRENCY", "currency"),
    "unknown field": (row(colour="red"), "UNKNOWN_FIELD", "colour"),
    "no externalId": (row(externalId=None), "MISSING_EXTERNAL_ID", "externalId"),
    "no adjustmentId": (row(adjustmentId=None), "MISSING_ADJUSTMENT_ID", "adjustmentId"),
    "long adjustmentId": (row(adjustmentId="x" * 201), "INVALID_ADJUSTMENT_ID", "adjustmentId"),
    "bad type": (row(type="REFUND"), "INVALID_TYPE", "type"),
    "RETRACT with value": (row(kind="RETRACT", value=1), "VALUE_NOT_ALLOWED", "value"),
    "RETRACT with currency": (row(kind="RETRACT", currency="TRY"), "VALUE_NOT_ALLOWED", "currency"),
    "RESTATE without value": (row(value=None), "VALUE_MISSING", "value"),
    "negative": (row(value=-1), "INVALID_ADJUSTED_VALUE", "value"),
    "no number": (row(value="ten"), "INVALID_ADJUSTED_VALUE", "value"),
    "bad currency": (row(currency="lira"), "INVALID_CURRENCY", "currency"),
    "bad time": (row(adjustedAt="yesterday"), "INVALID_TIME_FORMAT", "adjustedAt"),
    "future": (row(adjustedAt="2998-01-01T00:00:00Z"), "TIME_IN_FUTURE", "adjustedAt"),
    "before the conversion": (
        row(adjustedAt="2001-01-01T00:00:00Z"), "ADJUSTMENT_PRECEDES_CONVERSION", "adjustedAt",
    ),
    "unknown conversion": (row(99), "UNKNOWN_CONVERSION", "externalId"),
}  # fmt: skip


def test_a_row_is_refused_by_name_and_stores_nothing(site: OwnSite, sold: str):
    *refused, taken = post(site, *(given for given, _, _ in REFUSED.values()), row(adjustmentId="good"))
    for name, one in zip(REFUSED, refused, strict=True):
        assert (one["result"], one["code"], one["field"]) == ("rejected", *REFUSED[name][1:]), name
        assert one["message"]
    assert taken["result"] == "queued"
    assert len(site.oci.queue.notes(sold)) == 1


def test_an_adjustment_has_no_personal_data(site: OwnSite, sold: str):
    [job_id] = queued(site, row(), outcome="waits")
    payload = job(site, job_id).payload
    assert payload.pop("adjustedAt")
    assert payload == {
        "externalId": "sale-1", "adjustmentId": "a1", "type": "RESTATE", "value": 50,
        "currency": "TRY", "orderId": site.job(sold).payload["orderId"], "conversionId": sold,
    }  # fmt: skip


def test_the_currency_of_the_conversion_counts_where_none_is_given(site: OwnSite, sold: str):
    [job_id] = queued(site, row(currency=None, value="12,345"[:5]), outcome="waits")
    assert job(site, job_id).payload["currency"] == "TRY"


def test_sent_twice_it_is_once_and_other_data_are_named(site: OwnSite, sold: str):
    [first] = queued(site, row(), outcome="waits")
    site.clock.advance(60)
    same, other = post(site, row(), row(value=51))
    assert (same["result"], same["id"], same.get("differs")) == ("duplicate", first, None)
    assert (other["result"], other["id"], other["differs"]) == ("duplicate", first, ["value"])
    assert "a new adjustmentId" in other["message"]
    twice = post(site, row(adjustmentId="a2"), row(adjustmentId="a2", value=7))
    assert [one["result"] for one in twice] == ["queued", "duplicate"]
    assert twice[0]["id"] == twice[1]["id"]


def test_nothing_follows_a_retraction(site: OwnSite, sold: str):
    [first] = queued(site, row(kind="RETRACT"), outcome="waits")
    [again] = post(site, row(kind="RETRACT"))
    assert (again["result"], again["id"]) == ("duplicate", first)
    [late] = post(site, row(adjustmentId="a2"))
    assert (late["result"], late["code"]) == ("rejected", "ALREADY_RETRACTED")


def test_a_conversion_never_claimed_is_corrected_and_nothing_is_sent(site: OwnSite):
    [sale] = site.enqueue()
    [job_id] = queued(site, row(value=70, currency="EUR"), outcome="corrected")
    assert job(site, job_id).state == "COMPLETED"
    assert job(site, job_id).result == {"outcome": "corrected"}
    assert job(site, job_id).stamp_2 is None  # uploaded_at
    [item] = site.export()
    assert (item["conversionValue"], item["conversionCurrency"]) == (70, "EUR")
    assert site.state(sale) == "PROCESSING"


def test_of_several_adjustments_in_one_call_the_last_counts(site: OwnSite):
    site.enqueue()
    rows = [row(adjustmentId=f"a{n}", value=n) for n in range(1, 5)]
    queued(site, *rows, outcome="corrected")
    [item] = site.export()
    assert item["conversionValue"] == 4


def test_a_conversion_never_claimed_is_retracted_and_never_sent(site: OwnSite):
    [sale] = site.enqueue()
    [job_id] = queued(site, row(kind="RETRACT"), outcome="retracted")
    assert states(site, [job_id]) == ["COMPLETED"]
    assert (site.state(sale), site.job(sale).error_code) == ("FAILED", "RETRACTED")
    for action in ("RETRY_SELECTED", "RESET_TO_QUEUED"):
        assert site.act(action, [sale])["affected"] == 0
    [again] = site.post([site.row(conversionValue=1)])
    assert (again["result"], again["differs"]) == ("duplicate", ["conversionValue"])
    assert "retracted" in again["message"]
    assert site.export() == []
    fixed = site.act("CORRECT", [sale], conversion={"conversionValue": 3})
    assert fixed["affected"] == 0
    assert site.job(sale).error_code == "RETRACTED"


def test_a_retraction_is_no_failure(site: OwnSite):
    site.enqueue()
    queued(site, row(kind="RETRACT"), outcome="retracted")
    stats = site.stats()
    assert (stats["failedShare"], stats["withheld"]) == (0, 1)
    file = site.request("GET", f"dead-letter.csv?siteId={site.id}", site.reader).text
    assert "RETRACTED" not in file


def test_one_that_failed_for_its_data_before_a_claim_is_corrected_or_retracted(site: OwnSite):
    payload = {**site.row(), "orderId": "k1", "gclid": "?"}
    stamps = {"conversion_at": site.oci.queue.now() - DAY * SECOND_US}
    job_id = site.enqueue_raw(payload, key="sale-1", stamps=stamps)
    site.export()
    assert site.job(job_id).error_category == "VALIDATION"
    queued(site, row(), outcome="corrected")
    assert site.state(job_id) == "QUEUED"
    queued(site, row(kind="RETRACT", adjustmentId="a2"), outcome="retracted")


def test_one_marked_failed_by_hand_waits_with_its_restatement(site: OwnSite):
    [sale] = site.enqueue()
    site.act("MARK_FAILED", [sale])
    [job_id] = queued(site, row(), outcome="waits")
    turn(site)
    assert states(site, [job_id]) == ["WAITING"]
    site.act("RETRY_SELECTED", [sale])
    turn(site)
    assert states(site, [job_id]) == ["COMPLETED"]
    assert site.job(sale).payload["conversionValue"] == 50


def test_one_that_was_claimed_is_waited_for(shared: Oci):
    for state in ("PROCESSING", "RETRY", "FAILED"):
        site = OwnSite(shared)
        sale = site.row_in(state)
        [job_id] = queued(site, row(), outcome="waits")
        settle(site, 20 * MINUTE)
        assert states(site, [job_id]) == ["WAITING"]
        assert site.state(sale) == state
        site.ack([sale])
        settle(site)
        assert states(site, [job_id]) == ["READY"]


def test_one_that_was_claimed_is_waited_for_though_its_data_changed_since(site: OwnSite):
    [sale] = site.fail(1)
    assert site.post([site.row(1, conversionValue=7)])[0]["result"] == "corrected"
    assert site.state(sale) == "QUEUED"
    [job_id] = queued(site, row(kind="RETRACT"), outcome="waits")
    assert site.ack(bare(site.export()))["updated"] == 1
    settle(site)
    assert states(site, [job_id]) == ["READY"]


def test_an_old_sale_a_wbraid_and_a_refusal_are_refused_with_the_way_out(site: OwnSite):
    ids = site.enqueue(conversionTime=site.oci.ago(53.9 * DAY))
    ids += site.enqueue(first=2, gclid=None, wbraid="wbraid_000001")
    ids += site.enqueue(first=3)
    assert len(site.export()) == 3
    site.ack(ids)
    site.clock.advance(HOUR * 3)
    site.post([site.row(3, adUserData="denied")])
    old, braid, denied = post(site, *(row(n) for n in (1, 2, 3)))
    assert (old["code"], braid["code"]) == ("CONVERSION_EXPIRED", "WBRAID_NOT_ADJUSTABLE")
    assert "54 days" in old["message"]
    assert "gclid" in braid["message"]
    assert denied["code"] == "CONSENT_DENIED"
    queued(site, row(3, "RETRACT"), outcome="ready")


def test_what_was_never_sent_has_no_such_limits(site: OwnSite):
    site.enqueue(gclid=None, wbraid="wbraid_000001", conversionTime=site.oci.ago(60 * DAY))
    site.change(channel="data_manager")
    queued(site, row(kind="RETRACT"), outcome="retracted")


def test_data_manager_knows_no_retraction(site: OwnSite, sold: str):
    site.change(channel="data_manager")
    [refused] = post(site, row(kind="RETRACT"))
    assert (refused["result"], refused["code"]) == ("rejected", "RETRACT_NOT_POSSIBLE")
    assert "RESTATE with the value 0" in refused["message"]


def test_the_newest_revision_is_adjusted(site: OwnSite, sold: str):
    site.act("ENQUEUE_FIX", [sold], conversion={"conversionValue": 7})
    [revised] = [one.id for one in site.jobs() if one.id != sold]
    queued(site, row(value=9), outcome="corrected")
    assert site.job(revised).payload["conversionValue"] == 9


def test_a_long_call_is_taken_in_parts(site: OwnSite, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(adjustments, "CHUNK", 2)
    site.enqueue(5)
    results = post(site, *(row(n) for n in range(1, 6)))
    assert [one["index"] for one in results] == list(range(5))
    assert {one["outcome"] for one in results} == {"corrected"}
