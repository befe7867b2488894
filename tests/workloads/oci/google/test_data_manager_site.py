"""A site on the channel ``data_manager``: accepted is delivered, and the status is polled later."""

from collections.abc import Callable
from typing import Any

import pytest

from kesin.workloads.common.advice import LANGUAGES
from kesin.workloads.oci.google import data_manager
from kesin.workloads.oci.lifecycle import ADVICE
from kesin.workloads.oci.operations import SiteStats
from tests.workloads.oci.own_site import HOUR, MINUTE, ApiSite


@pytest.fixture
def api(make_api) -> ApiSite:
    return make_api("data_manager")


@pytest.fixture
def notes(api: ApiSite) -> Callable[[], list[tuple[str, str]]]:
    """Reads the notes that were stored since the test began."""
    store: Any = api.oci.store
    sql = f"SELECT kind, details FROM {store.dialect.table('note')} ORDER BY id"
    before = len(store._read(sql, {}))
    return lambda: [(row[0], row[1]) for row in store._read(sql, {})[before:]]


def test_accepted_rows_are_completed_and_only_their_request_is_polled(api: ApiSite, make_api):
    ids, other = api.enqueue(2), make_api("api")
    other.enqueue(1)
    assert api.turn() == {"COMPLETED": 3}
    entries = api.oci.accounts.directory.metadata_entries("oci", name="uploads")
    polled = {entry.site for entry in entries}
    assert (api.id in polled, other.id in polled) == (True, False)
    request_id = f"ingest-{[one.path for one in api.google.came].index('/v1/events:ingest') + 1}"
    assert api.job(ids[0]).result == {"channel": "data_manager", "requestId": request_id}


def test_the_status_is_not_asked_before_half_an_hour(api: ApiSite, notes):
    api.enqueue(1)
    api.turn()
    api.clock.advance(29 * MINUTE)
    api.turn()
    assert notes() == []
    api.clock.advance(2 * MINUTE)
    api.turn()
    ((kind, details),) = notes()
    assert kind == "upload_status"
    assert '"status":"SUCCESS"' in details
    assert api.warnings() == []


def test_the_warning_names_the_reasons_and_explains_the_commonest(api: ApiSite, notes):
    api.enqueue(1)
    api.turn()
    reasons = ["INVALID_GCLID", "CLICK_NOT_FOUND", "EVENT_TOO_OLD", "INTERNAL_ERROR"]
    counts = [
        {"recordCount": n, "reason": f"PROCESSING_ERROR_REASON_{one}"}
        for n, one in zip((3, 7, 1, 2), reasons, strict=True)
    ]
    warned = [{"recordCount": 4, "reason": "PROCESSING_WARNING_REASON_INTERNAL_ERROR"}]
    api.google.statuses["ingest-1"] = {
        "requestStatus": "PARTIAL_SUCCESS",
        "errorInfo": {"errorCounts": counts},
        "warningInfo": {"warningCounts": warned},
    }
    api.clock.advance(HOUR)
    api.turn()
    [warning] = api.stats()["warnings"]
    said = "ingest-1: PARTIAL_SUCCESS, PROCESSING_ERROR_REASON_CLICK_NOT_FOUND (7), "
    assert said in warning["message"]
    assert "INTERNAL_ERROR (2)" in warning["message"]
    assert "EVENT_TOO_OLD" not in warning["message"]  # the three commonest
    ((_, details),) = notes()
    assert '"PROCESSING_ERROR_REASON_EVENT_TOO_OLD":1' in details
    assert '"warnings":{"PROCESSING_WARNING_REASON_INTERNAL_ERROR":4}' in details
    stats = SiteStats(api.place)
    for language in LANGUAGES:
        advice = ADVICE.find("PROCESSING_ERROR_REASON_CLICK_NOT_FOUND", None, language)
        assert stats.advice("UPLOAD_NOT_TAKEN", language).act == advice.act


@pytest.mark.parametrize(("missing", "warned"), [(1, []), (2, ["UPLOAD_NOT_TAKEN"])])
def test_no_click_is_found_for_who_is_known_by_an_address_and_that_is_no_warning(
    api: ApiSite, missing: int, warned: list[str]
):
    api.change_settings(enhanced=True)
    api.post([api.row(1, gclid=None, email="a@example.com"), api.row(2)])
    api.turn()
    reason = "PROCESSING_ERROR_REASON_CLICK_NOT_FOUND"
    api.google.statuses["ingest-1"] = {
        "requestStatus": "PARTIAL_SUCCESS",
        "errorInfo": {"errorCounts": [{"recordCount": missing, "reason": reason}]},
    }
    api.clock.advance(HOUR)
    api.turn()
    assert api.warnings() == warned


def test_a_reason_that_google_does_not_name_is_explained_as_the_warning_and_the_rows_stay(api: ApiSite):
    ids = api.enqueue(1)
    api.turn()
    api.google.statuses["ingest-1"] = {"requestStatus": "FAILED", "errorInfo": {"errorCounts": [{"recordCount": 1}]}}
    api.clock.advance(HOUR)
    api.turn()
    [warning] = api.stats()["warnings"]
    assert (warning["code"], api.states(ids)) == ("UPLOAD_NOT_TAKEN", ["COMPLETED"])
    assert warning["message"].endswith("FAILURE, UNKNOWN (1)")
    advice = SiteStats(api.place).advice("UPLOAD_NOT_TAKEN", "en")
    assert advice.means == ADVICE.find("UPLOAD_NOT_TAKEN").means


def test_a_warning_from_before_reasons_were_kept_is_shown(api: ApiSite):
    with api.place.locked_metadata("uploads") as uploads:
        uploads["refused"] = {"requestId": "r-1", "status": "FAILURE", "at": 1}
    [warning] = api.stats()["warnings"]
    assert warning["message"] == "Google did not accept all of request r-1: FAILURE"
    advice = SiteStats(api.place).advice("UPLOAD_NOT_TAKEN", "en")
    assert advice.means == ADVICE.find("UPLOAD_NOT_TAKEN").means


def test_a_request_still_processing_is_asked_about_again_and_at_last_let_go(api: ApiSite, notes):
    api.enqueue(1)
    api.turn()
    api.google.statuses["ingest-1"] = {"requestStatus": "PROCESSING"}
    for _ in range(20):
        api.clock.advance(7 * HOUR)
        api.turn()
    assert len([one for one in api.google.came if "requestStatus" in one.path]) == 8
    assert len(notes()) == 1


def test_a_request_google_never_tells_of_is_let_go_too(api: ApiSite, notes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data_manager, "MAX_SILENT_POLLS", 3)
    api.enqueue(1)
    api.turn()
    api.google.statuses["ingest-1"] = {"requestStatus": "REQUEST_STATUS_UNKNOWN"}
    for _ in range(5):
        api.clock.advance(HOUR)
        api.turn()
    assert len([one for one in api.google.came if "requestStatus" in one.path]) == 3
    ((_, details),) = notes()
    assert '"status":"UNKNOWN"' in details
