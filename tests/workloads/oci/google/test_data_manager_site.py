"""A site on the channel ``data_manager``: accepted is delivered, and the status is polled later."""

import pytest

from kesin.workloads.oci.google import pending_uploads
from tests.workloads.oci.conftest import HOUR, MINUTE, SITE, ApiSites

pytestmark = pytest.mark.usefixtures("_quick_hashes")


@pytest.fixture
def api(api: ApiSites) -> ApiSites:
    api.switch("data_manager")
    return api


def kept_notes(api: ApiSites) -> list[tuple[str, str]]:
    table = api.store.dialect.table("note")
    sql = f"SELECT kind, details FROM {table} ORDER BY id"
    return [(row[0], row[1]) for row in api.store._read(sql, {})]


def test_accepted_rows_are_completed_with_their_request(api: ApiSites):
    ids = api.queued(2)
    assert api.turn() == {"COMPLETED": 2}
    assert api.look(ids[0]).outcome == {"channel": "data_manager", "requestId": "ingest-1"}


def test_one_wrong_event_does_not_sink_the_others(api: ApiSites):
    ids = api.queued(9)
    wrong = api.look(ids[4]).data["orderId"]
    api.google.names_events = False
    api.google.event_errors = lambda one: "INVALID" if one["transactionId"] == wrong else None
    assert api.turn() == {"COMPLETED": 8, "FAILED": 1}
    assert api.states([ids[4]]) == ["FAILED"]


def test_the_status_is_not_asked_before_half_an_hour(api: ApiSites):
    api.queued(1)
    api.turn()
    api.clock.advance(29 * MINUTE)
    api.turn()
    assert kept_notes(api) == []
    api.clock.advance(2 * MINUTE)
    api.turn()
    ((kind, details),) = kept_notes(api)
    assert kind == "upload_status"
    assert '"status":"SUCCESS"' in details
    assert api.stats()["warnings"] == []


def test_a_bad_status_warns_at_the_site_and_leaves_the_rows(api: ApiSites):
    ids = api.queued(1)
    api.turn()
    api.google.statuses["ingest-1"] = {"requestStatus": "FAILED"}
    api.clock.advance(HOUR)
    api.turn()
    assert [warning["code"] for warning in api.stats()["warnings"]] == ["UPLOAD_NOT_TAKEN"]
    assert api.states(ids) == ["COMPLETED"]


def test_a_request_still_processing_is_asked_about_again_and_at_last_let_go(api: ApiSites):
    api.queued(1)
    api.turn()
    api.google.statuses["ingest-1"] = {"requestStatus": "PROCESSING"}
    for _ in range(20):
        api.clock.advance(7 * HOUR)
        api.turn()
    assert len([one for one in api.google.came if "requestStatus" in one.path]) == 8
    assert len(kept_notes(api)) == 1


def test_a_request_google_never_tells_of_is_let_go_too(
    api: ApiSites, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pending_uploads, "MAX_SILENT_POLLS", 3)
    api.queued(1)
    api.turn()
    api.google.statuses["ingest-1"] = {"requestStatus": "WHO_KNOWS"}
    for _ in range(5):
        api.clock.advance(HOUR)
        api.turn()
    assert len([one for one in api.google.came if "requestStatus" in one.path]) == 3
    ((_, details),) = kept_notes(api)
    assert '"status":"UNKNOWN"' in details


def test_the_other_site_is_not_asked_about(api: ApiSites):
    api.queued(1)
    api.turn()
    facts = api.accounts.directory.metadata_entries("oci", name="uploads")
    assert [one.site for one in facts] == [SITE]
