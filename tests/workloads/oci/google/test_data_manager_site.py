"""A site on the channel ``data_manager``: accepted is delivered, and the status is polled later."""

from collections.abc import Callable
from typing import Any

import pytest

from kesin.workloads.oci.google import pending_uploads
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


def test_one_wrong_event_does_not_sink_the_others(api: ApiSite):
    ids = api.enqueue(9)
    wrong = api.job(ids[4]).payload["orderId"]
    api.google.names_events = False
    api.google.event_errors = lambda one: "INVALID" if one["transactionId"] == wrong else None
    assert api.turn() == {"COMPLETED": 8, "FAILED": 1}
    assert api.states([ids[4]]) == ["FAILED"]


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


def test_a_bad_status_warns_at_the_site_and_leaves_the_rows(api: ApiSite):
    ids = api.enqueue(1)
    api.turn()
    api.google.statuses["ingest-1"] = {"requestStatus": "FAILED"}
    api.clock.advance(HOUR)
    api.turn()
    assert api.warnings() == ["UPLOAD_NOT_TAKEN"]
    assert api.states(ids) == ["COMPLETED"]


def test_a_request_still_processing_is_asked_about_again_and_at_last_let_go(api: ApiSite, notes):
    api.enqueue(1)
    api.turn()
    api.google.statuses["ingest-1"] = {"requestStatus": "PROCESSING"}
    for _ in range(20):
        api.clock.advance(7 * HOUR)
        api.turn()
    assert len([one for one in api.google.came if "requestStatus" in one.path]) == 8
    assert len(notes()) == 1


def test_a_request_google_never_tells_of_is_let_go_too(
    api: ApiSite, notes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pending_uploads, "MAX_SILENT_POLLS", 3)
    api.enqueue(1)
    api.turn()
    api.google.statuses["ingest-1"] = {"requestStatus": "REQUEST_STATUS_UNKNOWN"}
    for _ in range(5):
        api.clock.advance(HOUR)
        api.turn()
    assert len([one for one in api.google.came if "requestStatus" in one.path]) == 3
    ((_, details),) = notes()
    assert '"status":"UNKNOWN"' in details
