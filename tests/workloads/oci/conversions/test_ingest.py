"""Ingest: one result per row, and sending rows twice changes nothing."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kesin.workloads.oci.conversions.conversion import order_id_of
from tests.workloads.oci import own_site
from tests.workloads.oci.conftest import SITE, Oci, bare
from tests.workloads.oci.own_site import OwnSite, refused, well

shared, site, neighbour = own_site.shared, own_site.site, own_site.neighbour
MINUTE = 60
CSV, NDJSON = "text/csv", "application/x-ndjson"


def results(told: list[dict[str, Any]]) -> list[str]:
    return [one["result"] for one in told]


# Taken


def test_a_row_is_queued_under_an_id(site: OwnSite):
    [result] = site.post(site.row())
    job = site.look(result["id"])
    assert result == {"index": 0, "externalId": "sale-1", "result": "queued", "id": job.id}
    assert (job.state, job.attempt_count, job.dedup_key) == ("QUEUED", 0, "sale-1")
    assert (job.max_attempts, job.tenant) == (5, site.id)


@pytest.mark.parametrize("shape", ["object", "array", "envelope"])
def test_json_may_come_in_three_shapes(site: OwnSite, shape: str):
    row = site.row()
    body = {"object": row, "array": [row], "envelope": {"siteId": site.id, "conversions": [row]}}
    assert results(site.post(body[shape])) == ["queued"]


def test_an_envelope_may_name_the_site_itself(site: OwnSite):
    body = {"siteId": site.uuid, "conversions": [site.row()]}
    answer = site.client.post("/api/oci/conversions", json=body, headers=site.producer)
    assert results(well(answer)["results"]) == ["queued"]


def test_ndjson_is_taken(site: OwnSite):
    body = "\n".join(json.dumps(site.row(n)) for n in (1, 2)) + "\nnonsense\n"
    response_body = well(site.ingest(body, NDJSON))["results"]
    assert results(response_body) == ["queued", "queued", "rejected"]
    assert response_body[2]["code"] == "NOT_JSON"


def test_a_spreadsheet_in_turkish_is_taken(site: OwnSite):
    body = (
        "\ufeffExternal ID;Google Click ID;Conversion Name;Conversion Time;Conversion Value;Not\r\n"
        "satış-1;Cj0KCQiA_x1;Telefon satışı;2023-11-10 12:00:00;1.500,75;özel\r\n"
    )
    [result] = well(site.ingest(body, CSV))["results"]
    assert result["result"] == "queued"
    [item] = site.export()
    assert (item["conversionName"], item["conversionValue"]) == ("Telefon satışı", 1500.75)
    assert (item["conversionTime"], item["conversionCurrency"]) == (
        "2023-11-10 12:00:00+03:00",
        "TRY",
    )


def test_an_amount_that_reads_two_ways_is_refused_and_the_others_are_taken(site: OwnSite):
    body = (
        "externalId,gclid,conversionName,conversionTime,conversionValue\n"
        "a,Cj0KCQiA,Sale,2023-11-10T12:00:00,1.500\n"
        "b,Cj0KCQiB,Sale,2023-11-10T12:00:00,1500.00\n"
    )
    response_body = well(site.ingest(body, CSV))["results"]
    assert results(response_body) == ["rejected", "queued"]
    assert (response_body[0]["code"], response_body[0]["field"]) == (
        "INVALID_CONVERSION_VALUE",
        "conversionValue",
    )


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        ("Europe/Istanbul", "2023-07-10 12:00:00+03:00"),
        ("Europe/Berlin", "2023-07-10 12:00:00+02:00"),
        ("America/New_York", "2023-07-10 12:00:00-04:00"),
    ],
)
def test_a_time_without_an_offset_is_the_sites(site: OwnSite, zone: str, told: str):
    site.become(timezone=zone)
    site.queued(1, conversionTime="2023-07-10T12:00:00")
    assert site.export()[0]["conversionTime"] == told


def test_a_zone_that_changes_later_does_not_move_what_is_stored(site: OwnSite):
    site.queued(1, conversionTime="2023-07-10T12:00:00")
    site.become(timezone="UTC")
    assert site.export()[0]["conversionTime"] == "2023-07-10 09:00:00+00:00"


def test_what_a_row_does_not_say_the_site_adds(site: OwnSite):
    site.become(currency="EUR")
    site.decide(conversion_name="Phone call")
    site.queued(1, conversionName=None, conversionCurrency=None)
    [item] = site.export()
    assert (item["conversionName"], item["conversionCurrency"]) == ("Phone call", "EUR")


@pytest.mark.parametrize(("channel", "cap"), [("script", 5), ("api", 8), ("data_manager", 8)])
def test_the_cap_is_that_of_the_sites_channel(site: OwnSite, channel: str, cap: int):
    site.become(channel=channel)
    [job_id] = site.queued()
    assert site.look(job_id).max_attempts == cap


def test_ten_thousand_rows_come_in_one_call(site: OwnSite):
    outcomes = site.post([site.row(n) for n in range(10_000)])
    assert [outcome["index"] for outcome in outcomes] == list(range(10_000))
    assert set(results(outcomes)) == {"queued"}
    assert site.stats()["totals"]["QUEUED"] == 10_000


def test_one_more_is_refused_as_a_whole(site: OwnSite):
    answer = site.ingest(json.dumps([{"externalId": "x"}] * 10_001), "application/json")
    assert refused(answer, 413)["code"] == "too_large"
    assert site.jobs() == []


# Rejected


def test_one_bad_row_never_sinks_the_batch(site: OwnSite):
    rows = [site.row(1), site.row(2, gclid=None), 5, site.row(3, conversionTime="?"), site.row(4)]
    outcomes = site.post(rows)
    assert results(outcomes) == ["queued", "rejected", "rejected", "rejected", "queued"]
    assert [outcome.get("code") for outcome in outcomes] == [
        *(None, "MISSING_CLICK_ID", "NOT_AN_OBJECT", "INVALID_TIME_FORMAT"),
        None,
    ]
    assert [outcome["index"] for outcome in outcomes] == [0, 1, 2, 3, 4]


def test_a_rejected_row_says_which_field_and_why(site: OwnSite):
    [result] = site.post([site.row(1, conversionValue=-1)])
    assert result.keys() == {"index", "externalId", "result", "code", "field", "message"}
    assert (result["externalId"], result["field"]) == ("sale-1", "conversionValue")


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({}, None),
        (5, None),
        ({"externalId": {}}, None),
        ({"externalId": 7}, "7"),
        ({"externalId": "x" * 300}, "x" * 200),
        ({"externalId": "a\ud800b"}, "ab"),
    ],
)
def test_a_rejected_row_is_named_as_far_as_it_can_be(site: OwnSite, row: Any, named: str | None):
    [result] = well(site.ingest(json.dumps([row]), "application/json"))["results"]
    assert (result["result"], result["externalId"]) == ("rejected", named)


def test_a_rejected_row_is_not_stored(site: OwnSite):
    site.post([site.row(1, gclid="?")])
    assert site.jobs() == []


@pytest.mark.parametrize(
    "body", ["", "{", "5", '{"conversions": 5}', '{"conversions": [], "siteId": 5}']
)
def test_a_body_that_cannot_be_read_is_refused(site: OwnSite, body: str):
    assert refused(site.ingest(body, "application/json"), 400)["code"]


def test_an_unknown_kind_of_body_is_refused(site: OwnSite):
    assert refused(site.ingest("<xml/>", "text/xml"), 400)["code"] == "unsupported_type"


def test_a_foreign_site_and_one_that_is_not_there_are_refused_alike(
    site: OwnSite, neighbour: OwnSite
):
    answers = [
        site.client.post(f"/api/oci/conversions?siteId={one}", json=[], headers=site.producer)
        for one in (neighbour.id, neighbour.uuid, "nowhere")
    ]
    assert {answer.status_code for answer in answers} == {403}
    assert len({answer.content for answer in answers}) == 1


def test_the_script_key_brings_no_conversions(site: OwnSite):
    answer = site.client.post(
        f"/api/oci/conversions?siteId={site.id}", json=[site.row()], headers=site.script
    )
    assert refused(answer, 403)["details"] == {"needs": "oci:ingest"}
    assert site.jobs() == []


# Duplicates


def test_the_same_rows_sent_again_change_nothing(site: OwnSite):
    rows = [site.row(n) for n in range(3)]
    ids = [one["id"] for one in site.post(rows)]
    before = site.jobs()
    outcomes = site.post(rows)
    assert results(outcomes) == ["duplicate"] * 3
    assert [outcome["id"] for outcome in outcomes] == ids
    assert site.jobs() == before


def test_a_row_that_comes_twice_in_one_call_is_taken_once(site: OwnSite):
    outcomes = site.post([site.row(1), site.row(1, conversionValue=9), site.row(2)])
    assert results(outcomes) == ["queued", "duplicate", "queued"]
    assert outcomes[0]["id"] == outcomes[1]["id"]
    assert site.look(outcomes[0]["id"]).data["conversionValue"] == 101


@pytest.mark.parametrize("state", ["QUEUED", "PROCESSING", "RETRY", "COMPLETED"])
def test_other_data_for_a_row_that_did_not_fail_is_a_duplicate(site: OwnSite, state: str):
    [job_id] = site.queued()
    if state != "QUEUED":
        site.export()
    if state == "RETRY":
        site.wait(16 * MINUTE, "recover")
    if state == "COMPLETED":
        site.ack([job_id])
    before = site.look(job_id)
    assert before.state == state
    assert results(site.post([site.row(1, conversionValue=9)])) == ["duplicate"]
    assert site.look(job_id) == before


def test_two_sites_may_have_the_same_external_id(site: OwnSite, neighbour: OwnSite):
    [mine], [theirs] = site.queued(), neighbour.queued()
    assert mine != theirs


# Corrected


def test_changed_data_mends_a_row_that_failed_validation(site: OwnSite):
    [job_id] = site.failed()
    site.wait(1)
    [result] = site.post([site.row(1, conversionValue=9)])
    assert (result["result"], result["id"]) == ("corrected", job_id)
    row = site.shown(job_id)
    assert (row["status"], row["failed_at"], row["last_error"]) == ("QUEUED", None, None)
    assert site.look(job_id).data["conversionValue"] == 9
    assert site.export()[0]["conversionValue"] == 9


def test_the_old_data_stays_in_the_history(site: OwnSite):
    [job_id] = site.failed()
    site.post([site.row(1, conversionValue=9)])
    last = site.events(job_id)[-1]
    assert (last.move, json.loads(last.old_payload or "")["conversionValue"]) == ("correct", 101)


def test_a_correction_renews_the_budget(site: OwnSite):
    [job_id] = site.failed()
    assert site.look(job_id).attempts_left == 4
    site.post([site.row(1, conversionValue=9)])
    job = site.look(job_id)
    assert (job.attempts_left, job.attempt_count) == (5, 1)


def test_a_correction_keeps_the_order_id(site: OwnSite):
    [job_id] = site.failed()
    before = site.look(job_id).data["orderId"]
    site.post([site.row(1, conversionValue=9)])
    assert site.export()[0]["orderId"] == before == order_id_of(site.id, "sale-1")


def test_unchanged_data_mends_nothing(site: OwnSite):
    rows = [site.row(1)]
    [job_id] = [one["id"] for one in site.post(rows)]
    site.export()
    site.ack_failed([job_id])
    assert results(site.post(rows)) == ["duplicate"]
    assert site.state(job_id) == "FAILED"


@pytest.mark.parametrize("category", ["TRANSIENT", "AUTH", "RATE_LIMIT"])
def test_another_failure_is_not_mended_by_data(site: OwnSite, category: str):
    [job_id] = site.failed(category=category)
    assert results(site.post([site.row(1, conversionValue=9)])) == ["duplicate"]
    assert site.state(job_id) == "FAILED"


def test_an_expired_row_is_mended_by_a_younger_time(oci: Oci):
    [job_id] = oci.queued()
    oci.clock.advance(95 * 86_400)
    oci.sweep("expire")
    assert oci.look(job_id).error_code == "EXPIRED"
    assert oci.post([oci.row(1)])[0]["result"] == "corrected"
    oci.sweep("expire")
    assert oci.state(job_id) == "QUEUED"


def test_of_two_corrections_in_one_call_the_first_counts(site: OwnSite):
    [job_id] = site.failed()
    outcomes = site.post([site.row(1, conversionValue=9), site.row(1, conversionValue=8)])
    assert results(outcomes) == ["corrected", "duplicate"]
    assert site.look(job_id).data["conversionValue"] == 9


def test_wrong_data_corrects_nothing(site: OwnSite):
    [job_id] = site.failed()
    assert results(site.post([site.row(1, conversionValue=-9)])) == ["rejected"]
    assert site.state(job_id) == "FAILED"


# Revisions


def test_a_producer_cannot_make_a_revision(site: OwnSite):
    site.queued()
    [result] = site.post([site.row(1, revision=2)])
    assert (result["result"], result["code"]) == ("rejected", "INVALID_REVISION")
    assert len(site.jobs()) == 1


def test_revision_one_is_the_row_itself(site: OwnSite):
    site.queued()
    assert results(site.post([site.row(1, revision=1), site.row(2, revision="1")])) == [
        "duplicate",
        "queued",
    ]


def test_a_producer_may_correct_a_revision_that_is_there(site: OwnSite):
    [job_id] = site.exported()
    site.ack([job_id])
    site.act("ENQUEUE_FIX", [job_id])
    [second] = bare(site.export())
    site.ack_failed([second])
    outcomes = site.post(
        [site.row(1, revision=2, conversionValue=9), site.row(1, conversionValue=8)]
    )
    assert [(outcome["result"], outcome["id"]) for outcome in outcomes] == [
        ("corrected", second),
        ("duplicate", job_id),
    ]


# Anything


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
fields = st.dictionaries(
    st.sampled_from(
        [
            *("externalId", "gclid", "wbraid", "conversionName", "conversionTime"),
            *("conversionValue", "conversionCurrency", "revision"),
        ]
    ),
    values,
)
many = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)


@many
@given(st.lists(values | fields, max_size=5))
@example([{"externalId": "\ud800"}])
@example([{"externalId": "a", "conversionValue": float("nan")}, float("inf")])
@example([{"externalId": "\0"}, {"externalId": 10**400}, {"externalId": False}])
def test_any_json_value_as_a_row_gets_a_result(shared: Oci, rows: list):
    answer = shared.client.post(
        f"/api/oci/conversions?siteId={SITE}",
        content=json.dumps(rows).encode(),
        headers={**shared.ingest_key, "content-type": "application/json"},
    )
    assert [result["index"] for result in well(answer)["results"]] == list(range(len(rows)))


@many
@given(st.sampled_from([CSV, NDJSON]), st.text(st.characters(codec="utf-8")))
@example(CSV, "externalId\n\0\n")
@example(NDJSON, '{"externalId": "\\ud800"}')
def test_any_text_is_taken_or_refused(shared: Oci, kind: str, text: str):
    header = "externalId,gclid,conversionName,conversionTime,conversionValue\n"
    body = (header if kind == CSV else "") + text
    answer = shared.client.post(
        f"/api/oci/conversions?siteId={SITE}",
        content=body.encode(),
        headers={**shared.ingest_key, "content-type": kind},
    )
    assert answer.status_code in {200, 400}


@many
@given(values)
def test_any_json_value_as_a_body_is_taken_or_refused(shared: Oci, value: Any):
    answer = shared.client.post(
        f"/api/oci/conversions?siteId={SITE}",
        content=json.dumps(value).encode(),
        headers={**shared.ingest_key, "content-type": "application/json"},
    )
    assert answer.status_code in {200, 400, 403}
