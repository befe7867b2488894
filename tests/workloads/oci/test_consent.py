"""Consent: what a row says, what its site says for it, and that a refusal is never sent."""

import json
from typing import Any

from kesin.engine.access.commands import stats_of_sites
from tests.workloads.oci.own_site import MINUTE, ApiSite, Oci, OwnSite, ok
from tests.workloads.oci.script import Script

GRANTED = {"adUserData": "granted", "adPersonalization": "granted"}
DENIED = {"adUserData": "denied", "adPersonalization": "denied"}
SAID = ("adUserData", "adPersonalization")


def said(site: OwnSite, job_id: str) -> dict[str, Any]:
    payload = site.job(job_id).payload
    return {name: payload[name] for name in SAID if name in payload}


# What is taken


def test_consent_is_an_object_or_columns_in_any_case(site: OwnSite):
    rows = [site.row(1, consent=GRANTED), site.row(2, adUserData="Granted ")]
    rows += [site.row(3, consent={"adUserData": None}), site.row(4, consent="")]
    ids = [result["id"] for result in site.post(rows)]
    columns = "externalId,gclid,conversionName,conversionTime,conversionValue,Ad User Data,"
    line = f"sale-5,Cj0KCQiA_click-5,Sale,{site.oci.ago(60)},5,Granted,Denied"
    [read] = ok(site.ingest(f"{columns}Ad Personalization\n{line}\n", "text/csv"))["results"]
    assert [said(site, job_id) for job_id in (*ids, read["id"])] == [
        GRANTED,
        {"adUserData": "granted"},
        {},
        {},
        {"adUserData": "granted", "adPersonalization": "denied"},
    ]


def test_what_is_neither_granted_nor_denied_is_rejected(site: OwnSite):
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"consent": "granted"}, "consent"),
        ({"consent": [True]}, "consent"),
        ({"consent": {"adStorage": "granted"}}, "consent"),
        ({"consent": GRANTED, "adUserData": "granted"}, "consent"),
        ({"consent": {"adUserData": True}}, "adUserData"),
        ({"consent": {"adUserData": "yes"}}, "adUserData"),
        ({"consent": {"adPersonalization": "UNSPECIFIED"}}, "adPersonalization"),
    ]
    results = site.post([site.row(n, **fields) for n, (fields, _) in enumerate(wrong)])
    assert {(result["result"], result["code"]) for result in results} == {("rejected", "INVALID_CONSENT")}
    assert [result["field"] for result in results] == [field for _, field in wrong]
    assert site.jobs() == []


def test_where_consent_is_required_a_row_without_it_is_rejected(site: OwnSite):
    site.change_settings(consent_required=True)
    rows = [{}, {"adUserData": "granted"}, {"adPersonalization": "granted"}]
    results = site.post([site.row(n, consent=consent) for n, consent in enumerate(rows)])
    assert [result["code"] for result in results] == ["CONSENT_MISSING"] * 3
    fields = [result["field"] for result in results]
    assert fields == ["adUserData", "adPersonalization", "adUserData"]
    kept = site.post([site.row(4, consent=GRANTED), site.row(5, consent={"adUserData": "denied"})])
    assert [result["result"] for result in kept] == ["queued", "queued"]
    assert len(site.jobs()) == 2


def test_the_site_says_what_its_rows_do_not_and_never_against_them(site: OwnSite):
    site.change_settings(consent_default="granted", consent_required=True)
    first, second = site.post([site.row(1), site.row(2, consent={"adUserData": "denied"})])
    assert said(site, first["id"]) == GRANTED
    assert site.job(second["id"]).error_code == "CONSENT_DENIED"
    site.change_settings(consent_default="denied")
    [third] = site.post([site.row(3)])
    assert site.job(third["id"]).error_code == "CONSENT_DENIED"


def test_a_default_that_comes_later_gives_no_consent_to_rows_that_are_there(site: OwnSite):
    [old] = site.enqueue()
    site.change_settings(consent_default="granted", script_columns=True)
    [item] = site.export()
    assert said(site, old) == {}
    assert not set(SAID) & set(item)


def test_rows_from_before_consent_was_required_are_stopped_and_come_back_with_it(site: OwnSite):
    [old] = site.enqueue()
    site.change_settings(consent_required=True)
    assert site.export() == []
    job = site.job(old)
    assert (job.state, job.error_code, job.attempt_count) == ("FAILED", "CONSENT_MISSING", 0)
    row = {**job.payload, "consent": GRANTED}
    row.pop("orderId")
    [result] = site.post([row])
    assert result["result"] == "corrected"
    assert len(site.export()) == 1


# A refusal


def test_a_refused_row_is_kept_and_never_sent(site: OwnSite):
    [result] = site.post([site.row(1, consent=DENIED)])
    assert (result["result"], result["code"]) == ("queued", "CONSENT_DENIED")
    job = site.job(result["id"])
    assert (job.state, job.error_code, job.error_category) == (*("FAILED", "CONSENT_DENIED"), "VALIDATION")
    assert [event.move for event in site.events(job.id)] == ["enqueue", "withhold"]
    assert "Cj0KCQiA" not in json.dumps([event.note for event in site.events(job.id)])
    moves = len(site.events(job.id))
    [again] = site.post([site.row(1, consent=DENIED)])
    assert (again["result"], again["code"]) == ("duplicate", "CONSENT_DENIED")
    assert len(site.events(job.id)) == moves


def test_a_refusal_is_no_failure_no_work_and_no_dead_letter(site: OwnSite):
    read = lambda: float(  # noqa: E731  # what the alert leaves out
        site.oci.service.metrics.page().decode().split("\nkesin_oci_withheld_jobs ")[1].split()[0]
    )
    before = read()
    site.post([site.row(n, consent=DENIED) for n in range(20)])
    assert (site.stats()["withheld"], read()) == (20, before + 20)
    assert (site.stats()["failedShare"], site.warnings()) == (0.0, [])
    site.fail(2, first=30)
    assert site.stats()["failedShare"] == 1.0
    site.ack(site.claim(2, first=40))
    assert (site.stats()["failedShare"], site.stats()["totals"]["FAILED"]) == (0.5, 22)
    queue = site.oci.queue
    stats = stats_of_sites(queue, queue.stats(), [site.id])
    failures = site.oci.service.failures.of(queue, stats, [site.id])
    assert [(group.code, group.n) for group in failures.needing] == [("BROKEN", 2)]
    page = site.request("GET", f"dead-letter.csv?siteId={site.id}", site.operator).text
    assert "CONSENT_DENIED" not in page
    assert len(page.splitlines()) == 3


def test_a_later_refusal_stops_a_row_wherever_it_waits(shared: Oci):
    for state in ("QUEUED", "RETRY", "FAILED"):
        site = OwnSite(shared)
        job_id = site.row_in(state)
        is_unsent = state == "QUEUED"  # Google may have any other: it keeps its data
        assert refuse(site, job_id)["result"] == ("corrected" if is_unsent else "duplicate")
        assert site.job(job_id).error_code == "CONSENT_DENIED"
        assert said(site, job_id) == (DENIED if is_unsent else {})
        site.wait(3_600)
        site.sweep()
        assert site.export() == []
        assert site.state(job_id) == "FAILED"


def refuse(site: OwnSite, job_id: str, **other: Any) -> dict[str, Any]:
    old = {name: value for name, value in site.job(job_id).payload.items() if name != "orderId"}
    [result] = site.post([{**old, "consent": DENIED, **other}])
    return result


def test_a_row_in_flight_that_is_refused_is_not_sent_again(shared: Oci):
    for clear in (None, False, True):
        site = OwnSite(shared)
        [job_id] = site.claim()
        result = refuse(site, job_id)
        assert (result["result"], result["differs"]) == ("duplicate", [*SAID])
        assert site.state(job_id) == "PROCESSING"
        if clear is None:
            site.wait(3_600)
            site.sweep()
        else:
            site.act("RESET_TO_QUEUED", [job_id], clearErrors=clear)
        assert site.export() == [], clear
        assert site.job(job_id).error_code == "CONSENT_DENIED"


def test_an_acknowledgement_after_a_refusal_still_counts(site: OwnSite):
    [job_id] = site.claim()
    refuse(site, job_id)
    site.ack([job_id])
    assert site.state(job_id) == "COMPLETED"
    assert site.act("ENQUEUE_FIX", [job_id], conversion={"conversionValue": 9})["affected"] == 0


def test_a_refusal_of_what_google_has_keeps_it_from_being_sent_again(site: OwnSite):
    [job_id] = site.claim()
    site.ack([job_id])
    for _ in range(2):
        result = refuse(site, job_id)
        assert (result["result"], result["differs"]) == ("duplicate", [*SAID])
    assert site.state(job_id) == "COMPLETED"
    assert [note.kind for note in site.oci.queue.notes(job_id)].count("CONSENT_DENIED") == 1
    for conversion in ({"consent": DENIED}, {"conversionValue": 9}, {"adUserData": " "}):
        assert site.act("ENQUEUE_FIX", [job_id], conversion=conversion)["affected"] == 0
    assert len(site.jobs()) == 1


def test_a_refusal_reaches_every_revision(site: OwnSite):
    [job_id] = site.claim()
    site.ack([job_id])
    assert site.act("ENQUEUE_FIX", [job_id], conversion={"conversionValue": 9})["affected"] == 1
    refuse(site, job_id)
    assert site.export() == []
    assert sorted(job.state for job in site.jobs()) == ["COMPLETED", "FAILED"]


def test_no_operator_sends_a_refused_row_or_makes_a_failure_of_it(site: OwnSite):
    [row] = site.post([site.row(1, consent=DENIED)])
    assert site.act("CORRECT", [row["id"]], conversion={"adUserData": " "})["affected"] == 0
    for action in ("RETRY_SELECTED", "RESET_TO_QUEUED", "MARK_FAILED"):
        for clear in (False, True):
            done = site.act(action, [row["id"]], clearErrors=clear)
            assert (done["affected"], done["already"]) == (0, action == "MARK_FAILED")
            assert all("a retry will not send it" in refused["reason"] for refused in done["refused"])
    site.wait(91 * 86_400)
    site.sweep()
    assert (site.state(row["id"]), site.job(row["id"]).error_code) == ("FAILED", "CONSENT_DENIED")
    assert site.stats()["withheld"] == 1


def test_a_refusal_counts_though_its_row_is_rejected_for_something_else(site: OwnSite):
    [row] = site.post([site.row(1, consent=GRANTED)])
    refusal = site.row(1, consent=DENIED, conversionValue="much", externalId=" sale-1\t")
    [result] = site.post([refusal])
    assert (result["result"], result["code"]) == ("rejected", "INVALID_CONVERSION_VALUE")
    assert "the sale with this externalId cannot be sent" in result["message"]
    assert site.export() == []
    assert site.job(row["id"]).error_code == "CONSENT_DENIED"


def test_a_refusal_in_a_file_counts_though_its_amount_reads_two_ways(site: OwnSite):
    [row] = site.post([site.row(1, consent=GRANTED)])
    head = "externalId;gclid;conversionName;conversionTime;conversionValue;Ad User Data"
    line = f"sale-1;Cj0KCQiA_click-000001;Phone sale;{site.oci.ago(60)};1.500;Denied"
    [result] = ok(site.ingest(f"{head}\n{line}\n", "text/csv"))["results"]
    assert (result["externalId"], result["result"]) == ("sale-1", "rejected")
    assert "the sale with this externalId cannot be sent" in result["message"]
    assert site.job(row["id"]).error_code == "CONSENT_DENIED"


def test_a_default_that_comes_later_changes_no_row_that_is_there(site: OwnSite):
    unsaid, granted = site.fail(1)[0], site.post([site.row(9, consent=GRANTED)])[0]["id"]
    old = {name: value for name, value in site.job(unsaid).payload.items() if name != "orderId"}
    site.change_settings(consent_default="granted")
    [again] = site.post([old])
    assert (again["result"], said(site, unsaid)) == ("duplicate", {})
    assert site.act("CORRECT", [unsaid], conversion={"conversionValue": 7})["affected"] == 1
    assert said(site, unsaid) == {}
    site.change_settings(consent_default="denied")
    [again] = site.post([site.row(9)])
    assert (again["result"], said(site, granted)) == ("duplicate", GRANTED)
    assert f"seal_{granted}" in {item["id"] for item in site.export()}


def test_a_refusal_in_the_same_call_wins_over_the_row_before_it(site: OwnSite):
    granted, denied = site.row(1, consent=GRANTED), site.row(1, consent=DENIED)
    first, second = site.post([granted, denied])
    assert (first["result"], second["result"]) == ("queued", "corrected")
    assert said(site, first["id"]) == DENIED
    assert site.export() == []


def test_only_a_row_that_says_granted_lifts_a_refusal(site: OwnSite):
    [first] = site.post([site.row(1, consent=DENIED)])
    for settings in ({}, {"consent_default": "granted"}):
        site.change_settings(**settings)
        silent = [site.row(1), site.row(1, consent={}), site.row(1, adUserData=" ")]
        for result in site.post(silent):
            assert (result["result"], result["code"]) == ("duplicate", "CONSENT_DENIED")
    [other] = site.post([site.row(1, conversionValue=7)])
    assert "its consent is denied" in other["message"]
    assert site.export() == []
    assert said(site, first["id"]) == DENIED
    [granted] = site.post([site.row(1, adUserData="Granted")])
    assert granted["result"] == "corrected"
    assert len(site.export()) == 1


def test_a_crash_between_storing_and_stopping_sends_nothing(site: OwnSite):
    payload = {**site.row(1), **DENIED}
    job_id = site.enqueue_raw(payload)
    assert site.export() == []
    assert [event.move for event in site.events(job_id)] == ["enqueue", "withhold"]


def test_an_operator_corrects_consent_and_a_refusal_stays_unsent(site: OwnSite):
    first, second = site.fail(2)
    assert site.act("CORRECT", [first], conversion={"consent": DENIED})["affected"] == 1
    assert site.job(first).error_code == "CONSENT_DENIED"
    assert site.act("CORRECT", [second], conversion={"adUserData": "granted"})["affected"] == 1
    assert [item["id"] for item in site.export()] == [f"seal_{second}"]


# What is sent


def test_a_script_gets_consent_only_where_its_site_says_so(site: OwnSite):
    consent = {"adUserData": "granted", "adPersonalization": "denied"}  # which alone may be refused
    site.post([site.row(n, consent=consent) for n in (1, 2)])
    [plain] = site.export(limit=1)
    assert len(plain) == 9
    site.change_settings(script_columns=True)
    [more] = site.export()
    assert {name: more[name] for name in SAID} == consent


def test_the_script_writes_googles_columns_where_rows_have_them():
    engine = Script("https://kesin.example.com", "north", "kesin_key")
    plain = {
        "id": "seal_1",
        "orderId": "order-1",
        "gclid": "Cj0KCQ-click_1",
        "conversionName": "Sale",
        "conversionTime": "2026-09-20 14:30:00+03:00",
        "conversionValue": 1,
        "conversionCurrency": "TRY",
    }
    consent = {"adUserData": "granted", "adPersonalization": "denied"}
    hashes = {"hashedEmail": "a" * 64, "hashedPhone": "b" * 64}
    engine.process({**plain, **consent, **hashes}, plain)
    columns = ["Ad User Data", "Ad Personalization", "Email", "Phone Number"]
    [upload] = engine.uploads
    assert upload.columns[-4:] == columns
    assert [[line[name] for name in columns] for line in engine.lines()] == [
        ["Granted", "Denied", "a" * 64, "b" * 64],
        ["", "", "", ""],
    ]


def test_each_channel_of_ours_says_it_as_google_asks(make_api):
    ads, manager = make_api("api"), make_api("data_manager")
    consent = {"adUserData": "granted", "adPersonalization": "denied"}
    for site in (ads, manager):
        rows = [site.row(1, consent=consent), site.row(2), site.row(3, consent=DENIED)]
        assert [result["result"] for result in site.post(rows)] == ["queued"] * 3
    assert ads.turn() == {"COMPLETED": 4}
    sent = {request.path: request.body for request in ads.google.came if request.body}
    [events] = [body["events"] for path, body in sent.items() if path.endswith("events:ingest")]
    [rows] = [body["conversions"] for path, body in sent.items() if "uploadClick" in path]
    said_by_google = {"adUserData": "CONSENT_GRANTED", "adPersonalization": "CONSENT_DENIED"}
    assert [event.get("consent") for event in events] == [said_by_google, None]
    assert [row.get("consent") for row in rows] == [{"adUserData": "GRANTED"}, None]


def test_our_worker_stops_a_refused_row_that_it_finds(api: ApiSite):
    job_id = api.enqueue_raw({**api.row(1), **DENIED})
    assert api.turn() == {}
    assert (api.state(job_id), api.job(job_id).error_code) == ("FAILED", "CONSENT_DENIED")
    assert api.google.came == []


# Hold for freshness


def test_a_row_waits_until_its_click_is_old_enough(site: OwnSite):
    site.change_settings(send_after_hours=6)
    results = site.post([site.row(1, conversionTime=site.oci.ago(0)), site.row(2)])
    young, old = (result["id"] for result in results)
    assert [item["id"] for item in site.export()] == [f"seal_{old}"]
    assert site.row_of(young)["next_retry_at"] is not None
    assert site.row_of(old)["next_retry_at"] is None
    site.wait(359 * MINUTE)
    assert site.export() == []
    site.wait(2 * MINUTE)
    assert [item["id"] for item in site.export()] == [f"seal_{young}"]


def test_a_hold_is_that_of_the_row_and_an_operator_ends_it(site: OwnSite):
    site.change_settings(send_after_hours=24)
    at = site.oci.ago(0)
    first, second = site.post([site.row(n, conversionTime=at) for n in (1, 2)])
    site.change_settings(send_after_hours=None)
    assert site.export() == []
    site.act("RESET_TO_QUEUED", [first["id"]])
    assert site.row_of(first["id"])["next_retry_at"] is None
    assert [item["id"] for item in site.export()] == [f"seal_{first['id']}"]
    assert site.state(second["id"]) == "QUEUED"


def test_corrected_data_wait_as_new_ones_do(site: OwnSite):
    site.change_settings(send_after_hours=6)
    at = site.oci.ago(0)
    [held] = site.post([site.row(1, conversionTime=at)])
    [corrected] = site.post([site.row(1, conversionTime=at, conversionValue=7)])
    assert (corrected["result"], site.export()) == ("corrected", [])
    site.post([site.row(1, conversionTime=site.oci.ago(7 * 60 * MINUTE), conversionValue=7)])
    assert [item["id"] for item in site.export()] == [f"seal_{held['id']}"]
