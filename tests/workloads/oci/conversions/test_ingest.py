"""Ingest: one result per row, and sending rows twice changes nothing."""

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kesin.engine.access.masking import MASK
from kesin.workloads.oci.conversions.conversion import order_id_of
from kesin.workloads.oci.conversions.ingest import ingest
from tests.web.conftest import ROOT
from tests.workloads.oci.own_site import DAY, Oci, OwnSite, bare, ok, refused

CSV, NDJSON = "text/csv", "application/x-ndjson"


def outcomes(results: list[dict[str, Any]]) -> list[str]:
    return [result["result"] for result in results]


def micros(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp()) * 1_000_000


# Taken


def test_a_row_is_queued_under_an_id(site: OwnSite):
    [result] = site.post(site.row())
    job = site.job(result["id"])
    assert result == {"index": 0, "externalId": "sale-1", "result": "queued", "id": job.id}
    assert (job.state, job.attempt_count, job.dedup_key) == ("QUEUED", 0, "sale-1")
    assert (job.max_attempts, job.tenant) == (5, site.id)


def test_json_ndjson_and_csv_are_taken(site: OwnSite):
    assert outcomes(site.post([site.row(1)])) == ["queued"]
    envelope = {"siteId": site.uuid, "conversions": [site.row(2)]}
    response = site.request("POST", "conversions", site.producer, json=envelope)
    assert outcomes(ok(response)["results"]) == ["queued"]
    body = "\n".join(json.dumps(site.row(n)) for n in (3, 4)) + "\nnonsense\n"
    results = ok(site.ingest(body, NDJSON))["results"]
    assert outcomes(results) == ["queued", "queued", "rejected"]
    assert results[2]["code"] == "NOT_JSON"
    body = (
        "externalId,gclid,conversionName,conversionTime,conversionValue\n"
        "a,Cj0KCQiA,Sale,2023-11-10T12:00:00,1.500\n"
        "b,Cj0KCQiB,Sale,2023-11-10T12:00:00,1500.00\n"
    )
    results = ok(site.ingest(body, CSV))["results"]
    assert outcomes(results) == ["rejected", "queued"]
    assert results[0]["code"] == "INVALID_CONVERSION_VALUE"
    assert results[0]["field"] == "conversionValue"


def test_the_site_adds_what_a_row_lacks_and_a_later_zone_does_not_move_it(site: OwnSite):
    site.change(currency="EUR")
    site.change_settings(conversion_name="Phone call")
    lacking: dict[str, Any] = dict.fromkeys(["conversionName", "conversionCurrency"])
    site.enqueue(1, conversionTime="2023-10-10T12:00:00", **lacking)
    site.change(timezone="UTC")
    [item] = site.export()
    assert (item["conversionName"], item["conversionCurrency"]) == ("Phone call", "EUR")
    assert item["conversionTime"] == "2023-10-10 09:00:00+00:00"


def test_the_cap_is_that_of_the_channel_of_the_site(site: OwnSite):
    site.change_settings(conversion_name="Phone sale")
    for number, (channel, cap) in enumerate((("script", 5), ("api", 8), ("data_manager", 8))):
        site.change(channel=channel)
        [job_id] = site.enqueue(first=number)
        assert site.job(job_id).max_attempts == cap


def test_more_than_ten_thousand_rows_are_refused_as_a_whole_and_fewer_have_a_result_each(site: OwnSite):
    response = site.ingest(json.dumps([{"externalId": "x"}] * 10_001))
    assert refused(response, 413)["code"] == "too_large"
    assert site.jobs() == []
    results = site.post([site.row(n % 20) for n in range(60)])
    assert [result["index"] for result in results] == list(range(60))
    assert outcomes(results) == ["queued"] * 20 + ["duplicate"] * 40
    assert len(site.jobs()) == 20


# Rejected


def test_a_bad_row_says_which_field_and_why_and_never_sinks_the_batch(site: OwnSite):
    rows = [site.row(1), site.row(2, gclid=None), 5, site.row(3, conversionTime="?"), site.row(4)]
    results = site.post(rows)
    assert outcomes(results) == ["queued", "rejected", "rejected", "rejected", "queued"]
    codes = ["MISSING_CLICK_ID", "NOT_AN_OBJECT", "INVALID_TIME_FORMAT"]
    assert [result.get("code") for result in results] == [None, *codes, None]
    assert [result["index"] for result in results] == [0, 1, 2, 3, 4]
    assert results[3].keys() == {"index", "externalId", "result", "code", "field", "message"}
    assert (results[3]["externalId"], results[3]["field"]) == ("sale-3", "conversionTime")
    assert len(site.jobs()) == 2


def test_a_rejected_row_is_named_as_far_as_it_can_be(site: OwnSite):
    names: list[tuple[Any, str | None]] = [
        ({}, None),
        (5, None),
        ({"externalId": {}}, None),
        ({"externalId": 7}, "7"),
        ({"externalId": "x" * 300}, "x" * 200),
        ({"externalId": "a\ud800b"}, "ab"),
    ]
    results = ok(site.ingest(json.dumps([row for row, _ in names])))["results"]
    assert set(outcomes(results)) == {"rejected"}
    assert [result["externalId"] for result in results] == [name for _, name in names]


def test_a_body_that_cannot_be_read_is_refused(site: OwnSite):
    assert refused(site.ingest("{"), 400)["code"] == "not_json"
    assert refused(site.ingest("<xml/>", "text/xml"), 400)["code"] == "unsupported_type"


# Duplicates


def test_the_same_rows_sent_again_change_nothing(site: OwnSite, neighbour: OwnSite):
    rows = [site.row(n) for n in range(3)]
    ids = [result["id"] for result in site.post(rows)]
    before = site.jobs()
    results = site.post(rows)
    assert outcomes(results) == ["duplicate"] * 3
    assert [result["id"] for result in results] == ids
    assert site.jobs() == before
    assert outcomes(neighbour.post(rows)) == ["queued"] * 3


def test_a_row_that_comes_twice_in_one_call_is_taken_once(site: OwnSite):
    results = site.post([site.row(1), site.row(1, conversionValue=9), site.row(2)])
    assert outcomes(results) == ["queued", "duplicate", "queued"]
    assert results[0]["id"] == results[1]["id"]
    assert results[1]["differs"] == ["conversionValue"]
    assert site.job(results[0]["id"]).payload["conversionValue"] == 101


def test_a_row_once_claimed_stays_and_the_duplicate_says_what_differs(shared: Oci):
    for state in ("QUEUED", "PROCESSING", "RETRY", "COMPLETED"):
        site = OwnSite(shared)
        job_id = site.row_in("PROCESSING" if state == "QUEUED" else state)
        if state == "QUEUED":
            site.act("RESET_TO_QUEUED", [job_id])
        before = site.job(job_id)
        other = {**before.payload, "conversionValue": 9, "gclid": "Cj0KCQiA_other"}
        [result] = site.post([{name: other[name] for name in site.row()}])
        assert (result["result"], result["differs"]) == ("duplicate", ["gclid", "conversionValue"])
        assert "gclid, conversionValue" in result["message"]
        assert site.job(job_id) == before


def test_the_same_moment_in_another_zone_is_no_difference(site: OwnSite):
    [job_id] = site.enqueue(1, conversionTime="2023-11-10T12:00:00+03:00")
    before = site.job(job_id)
    [result] = site.post([site.row(1, conversionTime="2023-11-10T09:00:00Z")])
    assert (result["result"], result.get("differs")) == ("duplicate", None)
    assert site.job(job_id) == before


# Corrected


def test_a_row_that_was_never_claimed_takes_the_new_values(site: OwnSite):
    [job_id] = site.enqueue(conversionValue=10)
    at = site.oci.ago(2 * DAY)
    for value in (999, 998):
        [result] = site.post([site.row(1, conversionValue=value, conversionTime=at)])
        assert result == {"index": 0, "externalId": "sale-1", "result": "corrected", "id": job_id}
    job, last = site.job(job_id), site.events(job_id)[-1]
    assert (job.state, job.attempts_left, job.stamp_1) == ("QUEUED", 5, micros(at))
    assert (last.move, json.loads(last.old_payload or "")["conversionValue"]) == ("correct", 999)
    assert [item["conversionValue"] for item in site.export()] == [998]


def test_changed_data_corrects_a_row_that_failed_validation(site: OwnSite):
    [job_id] = site.fail()
    before = site.job(job_id)
    assert before.attempts_left == 4
    site.wait(1)
    [result] = site.post([site.row(1, conversionValue=9)])
    assert (result["result"], result["id"]) == ("corrected", job_id)
    row, job = site.row_of(job_id), site.job(job_id)
    assert (row["status"], row["failed_at"], row["last_error"]) == ("QUEUED", None, None)
    assert job.payload["conversionValue"] == 9
    assert (job.attempts_left, job.attempt_count) == (5, 1)
    last = site.events(job_id)[-1]
    assert (last.move, json.loads(last.old_payload or "")["conversionValue"]) == ("correct", 101)
    [item] = site.export()
    assert item["conversionValue"] == 9
    assert item["orderId"] == before.payload["orderId"] == order_id_of(site.id, "sale-1")


def test_a_correction_names_old_and_new_values_in_its_event_and_in_the_audit_log(site: OwnSite):
    [job_id] = site.enqueue(conversionValue=10)
    row = site.row(1, conversionValue=11, gclid="Cj0KCQiA_other")
    row["conversionTime"] = site.job(job_id).payload["conversionTime"]
    assert site.producer
    [line] = site.audit_lines(lambda: site.post([row]))
    assert (line.action, line.actor[:4], line.site) == ("oci.correct", "key:", site.id)
    changed = {"conversionValue": {"old": 10, "new": 11}, "gclid": {"old": f"{MASK}0001", "new": f"{MASK}ther"}}
    assert json.loads(line.details or "") == {"corrected": 1, "changed": {job_id: changed}}
    assert json.loads(site.events(job_id)[-1].note or "") == {"changed": changed}
    history = ok(site.client.get(f"/api/jobs/{job_id}", headers=site.operator))
    assert history["events"][-1]["note"] == {"changed": changed}


def test_a_correction_that_is_not_applied_leaves_no_audit_line(site: OwnSite):
    site.claim()
    assert site.audit_lines(lambda: site.post([site.row(1, conversionValue=9)])) == []


def test_a_row_marked_failed_before_its_claim_takes_new_values_once_it_is_requeued(site: OwnSite):
    [job_id] = site.enqueue(conversionValue=10)
    site.act("MARK_FAILED", [job_id])
    row = site.row(1, conversionValue=11)
    [result] = site.post([row])
    assert (result["result"], "conversionValue" in result["differs"]) == ("duplicate", True)
    assert "after RETRY_SELECTED it will accept new values" in result["message"]
    site.act("RETRY_SELECTED", [job_id])
    assert outcomes(site.post([row])) == ["corrected"]
    assert site.job(job_id).payload["conversionValue"] == 11


def test_unchanged_or_wrong_data_corrects_nothing(site: OwnSite):
    rows = [site.row(1)]
    [result] = site.post(rows)
    site.export()
    site.ack_failed([result["id"]])
    assert outcomes(site.post(rows)) == ["duplicate"]
    assert outcomes(site.post([site.row(1, conversionValue=-9)])) == ["rejected"]
    assert site.state(result["id"]) == "FAILED"


def test_an_expired_row_is_corrected_by_a_younger_time(site: OwnSite):
    [job_id] = site.enqueue()
    site.wait(95 * DAY, "expire")
    assert site.job(job_id).error_code == "EXPIRED"
    assert outcomes(site.post([site.row(1)])) == ["corrected"]
    site.sweep("expire")
    assert site.state(job_id) == "QUEUED"


def test_of_two_corrections_in_one_call_the_first_counts(site: OwnSite):
    [job_id] = site.fail()
    results = site.post([site.row(1, conversionValue=9), site.row(1, conversionValue=8)])
    assert outcomes(results) == ["corrected", "duplicate"]
    assert site.job(job_id).payload["conversionValue"] == 9


def test_a_row_claimed_since_it_was_read_keeps_its_data(site: OwnSite, monkeypatch: pytest.MonkeyPatch):
    claimed, waiting = site.enqueue(2, conversionValue=10)
    find = site.context.queue.find

    def find_before_a_claim(job_ids):
        jobs = find(job_ids)
        monkeypatch.undo()
        assert bare(site.export(limit=1)) == [claimed]
        site.act("RESET_TO_QUEUED", [claimed])
        return jobs

    monkeypatch.setattr(site.context.queue, "find", find_before_a_claim)
    rows = [site.row(n, conversionValue=999) for n in (1, 2)]
    results = ingest(site.place, rows, actor=ROOT)
    assert [result.result for result in results] == ["duplicate", "corrected"]
    assert "conversionValue" in results[0].differs
    values = [site.job(job_id).payload["conversionValue"] for job_id in (claimed, waiting)]
    assert values == [10, 999]


# Revisions


def test_a_producer_cannot_make_a_revision_and_revision_one_is_the_row_itself(site: OwnSite):
    site.enqueue()
    [result] = site.post([site.row(1, revision=2)])
    assert (result["result"], result["code"]) == ("rejected", "INVALID_REVISION")
    assert len(site.jobs()) == 1
    rows = [site.row(1, revision=1), site.row(2, revision="1")]
    assert outcomes(site.post(rows)) == ["duplicate", "queued"]


def test_a_producer_may_correct_a_revision_that_exists(site: OwnSite):
    job_id = site.row_in("COMPLETED")
    site.act("ENQUEUE_FIX", [job_id])
    [second] = bare(site.export())
    site.ack_failed([second])
    results = site.post([site.row(1, revision=2, conversionValue=9), site.row(1, conversionValue=8)])
    assert [(result["result"], result["id"]) for result in results] == [("corrected", second), ("duplicate", job_id)]


# Anything


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["externalId", "gclid", "wbraid", "conversionName", "conversionTime", "revision"]
FIELDS += ["conversionValue", "conversionCurrency"]
fields = st.dictionaries(st.sampled_from(FIELDS), values)
few = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)


@pytest.fixture(scope="module")
def fuzzed(shared: Oci) -> OwnSite:
    return OwnSite(shared)


@few
@given(st.lists(values | fields, max_size=5))
@example([{"externalId": "\ud800"}])
@example([{"externalId": "a", "conversionValue": float("nan")}, float("inf")])
@example([{"externalId": "\0"}, {"externalId": 10**400}, {"externalId": False}])
def test_any_json_value_as_a_row_gets_a_result(fuzzed: OwnSite, rows: list):
    results = fuzzed.post(rows)
    assert [result["index"] for result in results] == list(range(len(rows)))
