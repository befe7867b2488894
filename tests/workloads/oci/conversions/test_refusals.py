"""A refusal stops a row wherever it is and whatever comes between; what Google may have waits."""

import threading
from typing import Any

import pytest

from kesin.workloads.oci.conversions import corrections, ingest
from kesin.workloads.oci.site import SiteContext
from tests.web.conftest import ROOT
from tests.workloads.oci.adjustments.adjusting import queued, row, settle, states
from tests.workloads.oci.own_site import MINUTE, OwnSite, bare

GRANTED = {"adUserData": "granted"}
DENIED = {"adUserData": "denied"}


def as_posted(site: OwnSite, job_id: str) -> dict[str, Any]:
    left_out = ("orderId", "adUserData")
    payload = site.job(job_id).payload
    return {name: value for name, value in payload.items() if name not in left_out}


def repeat(site: OwnSite, job_id: str, **fields: Any) -> dict[str, Any]:
    """Post the row again as it is stored, with other fields."""
    [result] = site.post([{**as_posted(site, job_id), **fields}])
    return result


# At once


def test_a_refusal_between_reading_and_correcting_wins(site: OwnSite, monkeypatch: pytest.MonkeyPatch):
    [job_id] = site.enqueue()
    correct = ingest._correct_unclaimed

    def refused_first(*given: Any) -> Any:
        monkeypatch.setattr(ingest, "_correct_unclaimed", correct)
        repeat(site, job_id, consent=DENIED)
        return correct(*given)

    monkeypatch.setattr(ingest, "_correct_unclaimed", refused_first)
    assert repeat(site, job_id, conversionValue=999)["result"] == "duplicate"
    assert site.export() == []
    assert site.job(job_id).error_code == "CONSENT_DENIED"


@pytest.mark.parametrize("action", ["CORRECT", "ENQUEUE_FIX"])
def test_a_refusal_while_an_operator_fixes_the_row_wins(site: OwnSite, monkeypatch: pytest.MonkeyPatch, action: str):
    """On SQLite it waits for the transaction of the fix, on PostgreSQL for its lock."""
    job_id = site.row_in("COMPLETED") if action == "ENQUEUE_FIX" else site.fail()[0]
    old = as_posted(site, job_id)
    came, locked = threading.Event(), SiteContext.locked_metadata
    write = "enqueue_rows" if action == "ENQUEUE_FIX" else "correct_rows"
    writing = getattr(ingest, write)

    def refuse() -> None:
        try:
            ingest.ingest(site.place, [{**old, "consent": DENIED}], actor=ROOT)
        finally:
            came.set()

    refusal = threading.Thread(target=refuse)

    def asked(place: SiteContext, name: str) -> Any:
        if threading.current_thread() is refusal:
            came.set()
        return locked(place, name)

    def refused_first(place: SiteContext, *given: Any) -> Any:
        if refusal.ident is None:
            refusal.start()
            if place.queue.store.__class__.__name__.startswith("Postgres"):
                came.wait()
        return writing(place, *given)

    monkeypatch.setattr(SiteContext, "locked_metadata", asked)
    monkeypatch.setattr(ingest, write, refused_first)
    assert corrections.fix_rows(
        site.place, ROOT, [{"externalId": "sale-1", "conversionValue": 9}]
    )[0].is_change  # fmt: skip
    refusal.join()
    assert site.export() == []


# What was claimed


@pytest.mark.parametrize("state", ["RETRY", "FAILED"])
def test_a_refusal_of_what_was_claimed_loses_no_ack_and_its_retraction_waits_for_one(site: OwnSite, state: str):
    job_id = site.row_in(state)
    old = site.job(job_id).payload
    repeat(site, job_id, consent=DENIED)
    assert (site.job(job_id).error_code, site.job(job_id).payload) == ("CONSENT_DENIED", old)
    assert site.export() == []
    [waiting] = queued(site, row(1, "RETRACT"), outcome="waits")
    assert site.ack([job_id])["updated"] == 1
    assert site.state(job_id) == "COMPLETED"
    settle(site)
    assert states(site, [waiting]) == ["READY"]


def test_a_claim_between_reading_and_refusing_is_noted(site: OwnSite, monkeypatch: pytest.MonkeyPatch):
    [job_id] = site.enqueue()
    old = as_posted(site, job_id)
    claim, apply = threading.Thread(target=site.export), SiteContext.apply

    def claimed_first(place: SiteContext, action: str, *given: Any, **how: Any) -> Any:
        if action == "correct" and claim.ident is None:
            claim.start()
            if place.queue.store.__class__.__name__.startswith("Postgres"):
                claim.join()
        return apply(place, action, *given, **how)

    monkeypatch.setattr(SiteContext, "apply", claimed_first)
    ingest.ingest(site.place, [{**old, "consent": DENIED}], actor=ROOT)
    claim.join()
    site.wait(16 * MINUTE, "recover")
    assert site.export() == []
    assert site.job(job_id).error_code == "CONSENT_DENIED"


# Granted after all


@pytest.mark.parametrize("before", [pytest.param({}, marks=pytest.mark.long), {"consent": GRANTED}])
@pytest.mark.parametrize("then", ["fails", "recovers", "waits"])
def test_who_agrees_after_a_refusal_in_flight_is_sent(site: OwnSite, before: Any, then: str):
    [job_id] = site.enqueue(**before)
    site.export()
    repeat(site, job_id, consent=DENIED)
    if then == "fails":
        site.ack_failed([job_id], errorCode="BROKEN", errorCategory="VALIDATION")
    else:
        site.wait(16 * MINUTE, "recover")
        assert then == "waits" or site.export() == []
    repeat(site, job_id, consent=GRANTED)
    assert bare(site.export()) == [job_id]
    repeat(site, job_id, consent=DENIED)
    site.wait(16 * MINUTE, "recover")
    assert site.export() == []


def test_a_refusal_in_the_same_call_wins_over_what_lifts_it(site: OwnSite):
    job_id = site.row_in("RETRY")
    old = as_posted(site, job_id)
    for order in ([DENIED, GRANTED], [GRANTED, DENIED]):
        site.post([{**old, "consent": consent} for consent in order])
        assert site.export() == []


def test_an_operator_lifts_a_refusal_in_flight_with_the_word_granted(site: OwnSite):
    [job_id] = site.claim()
    repeat(site, job_id, consent=DENIED)
    site.ack_failed([job_id], errorCode="BROKEN", errorCategory="VALIDATION")
    change = {"adUserData": "granted", "conversionValue": 9}
    assert site.act("CORRECT", [job_id], conversion={"conversionValue": 9})["affected"] == 0
    assert site.act("CORRECT", [job_id], conversion=change)["affected"] == 1
    assert bare(site.export()) == [job_id]
    site.wait(16 * MINUTE, "recover")
    assert bare(site.export()) == [job_id]


# Cost


def test_an_export_reads_the_notes_of_all_its_rows_at_once(site: OwnSite, monkeypatch: pytest.MonkeyPatch):
    ids = site.claim(30)
    site.wait(16 * MINUTE, "recover")
    store, read = site.oci.queue.store, list[int]()
    notes = store.notes

    def counted(*ids: str) -> Any:
        read.append(len(ids))
        return notes(*ids)

    monkeypatch.setattr(store, "notes", counted)
    assert sorted(bare(site.export())) == sorted(ids)
    assert read == [30, 30]


def test_refused_rows_that_are_new_are_looked_up_once_with_the_usual_revisions(
    site: OwnSite, monkeypatch: pytest.MonkeyPatch
):
    store, looked_up = site.oci.queue.store, list[int]()
    by_key = store.ids_by_key

    def counted(queue: str, tenant: str, keys: Any) -> Any:
        looked_up.append(len(keys))
        return by_key(queue, tenant, keys)

    monkeypatch.setattr(store, "ids_by_key", counted)
    site.post([site.row(n, consent=DENIED) for n in range(50)])
    assert sum(looked_up) <= 5 * 50
