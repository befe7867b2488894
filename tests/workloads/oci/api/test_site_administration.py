"""Sites, their keys, credentials and settings over HTTP, and their removal."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from kesin.foundation.problems import NotFound, Problem
from kesin.store.directory import MetadataEntry
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.google.credentials import vault_name
from tests.web.conftest import ROOT, error_of
from tests.web.matrix import CREDENTIALS
from tests.workloads.oci.own_site import Oci, OwnSite


@pytest.fixture
def admin(shared: Oci) -> dict[str, str]:
    return shared.key("admin")


def new_id(site: OwnSite) -> str:
    return f"{site.id}-new"


# Sites


def test_a_site_is_added_shown_and_changed(shared, site, admin):
    body = {"id": new_id(site), "name": "New", "currency": "EUR"}
    added = shared.client.post("/api/sites", json=body, headers=admin)
    assert added.status_code == 201
    assert added.json()["timezone"] == "Europe/Istanbul"
    path = f"/api/sites/{body['id']}"
    assert shared.client.get(path, headers=admin).json() == added.json()
    changed = shared.client.patch(path, json={"timezone": "UTC"}, headers=admin).json()
    assert changed == added.json() | {"timezone": "UTC"}
    listed = shared.client.get("/api/sites", headers=admin).json()
    assert {k: v for k, v in changed.items() if k != "settings"} in listed


def test_the_same_request_again_changes_nothing_and_another_is_a_conflict(shared, site, admin):
    body = {"id": new_id(site), "name": "New"}
    first = shared.client.post("/api/sites", json=body, headers=admin)
    lines = shared.said(lambda: shared.client.post("/api/sites", json=body, headers=admin))
    again = shared.client.post("/api/sites", json=body, headers=admin)
    assert (again.status_code, again.json(), lines) == (200, first.json(), [])
    other = shared.client.post("/api/sites", json=body | {"name": "Other"}, headers=admin)
    assert other.status_code == 409
    assert shared.client.get(f"/api/sites/{body['id']}", headers=admin).json() == first.json()


def test_an_unknown_field_is_refused_by_name(shared, site, admin):
    body = {"id": new_id(site), "colour": "red"}
    for refused in (
        shared.client.post("/api/sites", json=body, headers=admin),
        shared.client.patch(f"/api/sites/{site.id}", json={"colour": "red"}, headers=admin),
    ):
        assert refused.status_code == 422
        assert "colour" in error_of(refused)["message"]


def test_a_site_like_another_gets_its_settings_but_not_its_account(shared, site, admin):
    actions = [{"name": "Phone sale", "id": "1", "default": True}, {"name": "Other", "id": "2"}]
    settings = {"customer_id": "123-456-7890", "recover_minutes": 45, "actions": actions}
    path = f"/api/oci/sites/{site.id}/settings"
    assert shared.client.patch(path, json=settings, headers=admin).status_code == 200
    shared.client.patch(f"/api/sites/{site.id}", json={"currency": "EUR"}, headers=admin)
    shared.client.put(f"/api/oci/sites/{site.id}/credentials", json=CREDENTIALS["credentials"], headers=admin)
    body = {"id": new_id(site), "like": site.id, "timezone": "UTC"}
    made = shared.client.post("/api/sites", json=body, headers=admin).json()
    assert made["settings"] == {"oci": {"recover_minutes": 45}}
    assert (made["name"], made["currency"], made["timezone"]) == (body["id"], "EUR", "UTC")
    assert shared.accounts.directory.secret(vault_name(body["id"])) is None
    unknown = shared.client.post("/api/sites", json={"id": "x", "like": "nowhere"}, headers=admin)
    assert (unknown.status_code, error_of(unknown)["details"]) == (422, {"field": "like"})


# Keys, credentials, settings


def test_a_key_of_a_site_is_shown_once_and_revoked(shared, site, admin):
    path = f"/api/sites/{site.id}/keys"
    made = shared.client.post(path, json={"name": "script", "scopes": ["oci:script"]}, headers=admin)
    assert made.status_code == 201
    assert made.headers["cache-control"] == "private, no-store"
    key = made.json()
    by_key = {"x-api-key": key["key"]}
    verify = {"siteId": site.id}
    assert shared.client.post("/api/oci/v2/verify", json=verify, headers=by_key).status_code == 200
    [listed] = shared.client.get(path, headers=admin).json()
    assert listed["key"] is None
    assert listed["id"] == key["id"]
    revoked = shared.client.delete(f"{path}/{key['id']}", headers=admin).json()
    assert revoked["revoked_at"] is not None
    assert shared.client.post("/api/oci/v2/verify", json=verify, headers=by_key).status_code == 401


def test_a_key_of_a_site_has_only_scopes_of_a_site(shared, site, admin):
    path = f"/api/sites/{site.id}/keys"
    refused = shared.client.post(path, json={"name": "all", "scopes": ["admin"]}, headers=admin)
    assert (refused.status_code, error_of(refused)["details"]) == (422, {"field": "site"})


def test_a_key_of_another_site_is_not_revoked(shared, site, neighbour, admin):
    by_key = neighbour.script
    keys = shared.accounts.directory.api_keys()
    [key_id] = [key.id for key in keys if key.site == neighbour.id]
    refused = shared.client.delete(f"/api/sites/{site.id}/keys/{key_id}", headers=admin)
    assert refused.status_code == 404
    assert neighbour.request_export(by_key).status_code == 200


def test_credentials_are_sealed_and_only_their_names_come_back(shared, site, admin):
    path = f"/api/oci/sites/{site.id}/credentials"
    document = CREDENTIALS["credentials"] | {"client_secret": "GOCSPX-sealed"}
    answer = shared.client.put(path, json=document, headers=admin)
    assert answer.json() == {"set": sorted(document)}
    assert document["refresh_token"] in shared.context.vault.get(vault_name(site.id))
    assert document["client_secret"] not in answer.text
    refused = shared.client.put(path, json=document | {"colour": "red"}, headers=admin)
    assert (refused.status_code, error_of(refused)["details"]) == (422, {"field": "colour"})


def test_settings_are_changed_and_a_bad_one_is_refused_by_name(shared, site, admin):
    path = f"/api/oci/sites/{site.id}/settings"
    first = shared.client.patch(path, json={"customer_id": "123-456-7890"}, headers=admin)
    assert first.json() == {"customer_id": "1234567890"}
    more = {"customer_id": None, "silent_hours": 5}
    assert shared.client.patch(path, json=more, headers=admin).json() == {"silent_hours": 5}
    for name, bad in {"customer_id": "123", "colour": "red", "silent_hours": 0}.items():
        refused = shared.client.patch(path, json={name: bad}, headers=admin)
        assert (refused.status_code, error_of(refused)["details"]) == (422, {"field": name})
    assert site.place.settings.silent_hours == 5


# Removal


def test_the_preview_of_a_removal_names_all_that_ends_and_stays(shared, site, admin):
    site.post([site.row(1), site.row(2)])
    site.act("MARK_FAILED", ids=[site.jobs()[0].id])
    shared.accounts.add_user(ROOT, f"user-{site.id}", "a long password", sites=[site.id, "elsewhere"][:1])
    shared.client.put(f"/api/oci/sites/{site.id}/credentials", json=CREDENTIALS["credentials"], headers=admin)
    found = shared.client.get(f"/api/sites/{site.id}/removal", headers=admin).json()
    keys = [key.id for key in shared.accounts.directory.api_keys() if key.site == site.id]
    assert found == {
        "site": site.id,
        "open": {"oci": 1},
        "ended": {"oci": 1},
        "keys": keys,
        "secrets": [f"oci/{site.id}"],
        "users": [f"user-{site.id}"],
    }


def test_a_site_with_open_jobs_stays_and_the_refusal_counts_them(shared, site, admin):
    site.post([site.row(1)])
    path, sure = f"/api/sites/{site.id}", {"confirm": site.id}
    refused = shared.client.delete(path, params=sure, headers=admin)
    assert (refused.status_code, error_of(refused)["code"]) == (409, "open_jobs")
    assert error_of(refused)["details"]["open"] == {"oci": 1}
    assert shared.client.get(path, headers=admin).status_code == 200
    assert site.export() != []  # its key works


def test_a_removal_needs_the_id_again(shared, site, admin):
    path = f"/api/sites/{site.id}"
    for params in ({}, {"confirm": "another"}):
        refused = shared.client.delete(path, params=params, headers=admin)
        assert (refused.status_code, error_of(refused)["code"]) == (422, "not_confirmed")
    assert shared.client.get(path, headers=admin).status_code == 200


@pytest.fixture
def removed(shared: Oci, site: OwnSite, admin: dict[str, str]) -> OwnSite:
    """A site that had a delivered row, a failed one, a key, credentials and a user."""
    assert site.producer
    site.post([site.row(1), site.row(2)])
    [first] = site.export(limit=1)
    site.ack([first["id"].removeprefix("seal_")])
    site.act("MARK_FAILED", ids=[job.id for job in site.jobs() if job.state == "QUEUED"])
    shared.accounts.add_user(ROOT, f"user-{site.id}", "a long password", sites=[site.id])
    shared.client.put(f"/api/oci/sites/{site.id}/credentials", json=CREDENTIALS["credentials"], headers=admin)
    answer = shared.client.delete(f"/api/sites/{site.id}", params={"confirm": site.id}, headers=admin)
    assert answer.status_code == 200, answer.text
    return site


def test_a_removal_ends_keys_credentials_and_access_and_is_audited(shared, removed, admin):
    directory = shared.accounts.directory
    assert directory.site(removed.id) is None
    assert directory.secret(vault_name(removed.id)) is None
    user = directory.user(f"user-{removed.id}")
    assert user is not None
    assert user.sites == ()
    assert all(key.revoked_at for key in directory.api_keys() if key.site == removed.id)
    lines = [line for line in shared.audit() if line.site == removed.id]
    assert lines[-1].action == "site.remove"
    assert json.loads(lines[-1].details or "")["ended"] == {"oci": 2}
    assert shared.client.get(f"/api/sites/{removed.id}", headers=admin).status_code == 404


def test_rows_of_a_removed_site_stay_readable_for_those_who_see_all_sites(shared, removed, admin):
    rows = shared.client.get("/api/queues/oci/jobs", params={"site": removed.id}, headers=admin).json()["jobs"]
    assert len(rows) == 2
    pages = [
        "/dashboard",
        "/dashboard/oci",
        "/dashboard/triage",
        "/dashboard/audit",
        f"/dashboard/queues/oci?site={removed.id}",
        f"/dashboard/queues/oci/rows.csv?site={removed.id}",
        f"/dashboard/jump?q={removed.id}",
        *(f"/dashboard/jobs/{row['id']}" for row in rows),
    ]
    viewer = shared.cookie(shared.known("sees-all", "operator", all_sites=True))
    root = shared.cookie(shared.known("root", "admin"))
    for page in pages:
        headers = root if page == "/dashboard/audit" else viewer
        assert shared.client.get(page, headers=headers).status_code == 200, page
    gone = f"/dashboard/site/{removed.id}/oci-control"
    assert shared.client.get(gone, headers=viewer).status_code == 404


def test_who_comes_after_the_removal_is_refused_and_nothing_breaks(shared, removed):
    assert (
        removed.client.post(
            "/api/oci/conversions", params={"siteId": removed.id}, json=[removed.row(3)], headers=removed.producer
        ).status_code
        == 401
    )
    anyone = {"x-api-key": shared.accounts.create_key(ROOT, "manager", ["oci:script"], all_sites=True)[0]}
    claim = {"siteId": removed.id, "markAsExported": "true"}
    refused = removed.client.get("/api/oci/google-ads-export", params=claim, headers=anyone)
    assert (refused.status_code, error_of(refused)["code"]) == (404, "not_found")
    for task in ("recover-processing", "attempt-cap", "process-offline-conversions"):
        assert shared.cron(task)["ok"]
    shared.sweep()


def test_a_row_that_arrives_while_the_site_goes_is_refused(shared, site):
    place = site.place  # found before the removal
    shared.accounts.directory.delete_site(site.id)
    with pytest.raises(NotFound):
        ingest(place, [site.row(1)], actor=ROOT)
    assert shared.queue.stats().tenants.get(site.id) is None


def test_removal_and_rows_at_once_never_leave_an_open_row_without_a_site(shared, admin):
    for _ in range(5):
        site = OwnSite(shared)
        start, refused = threading.Barrier(2), list[str]()
        thread = threading.Thread(target=post_one, args=(site, start, refused))
        thread.start()
        start.wait()
        answer = shared.client.delete(f"/api/sites/{site.id}", params={"confirm": site.id}, headers=admin)
        thread.join()
        is_there = shared.accounts.directory.site(site.id) is not None
        is_open = bool(shared.queue.stats().tenants.get(site.id))
        assert (answer.status_code, is_there, is_open, refused) in [
            (409, True, True, []),  # the row was first
            (200, False, False, ["not_found"]),  # the site was gone
        ]


def post_one(site: OwnSite, start: threading.Barrier, refused: list[str]) -> None:
    place = site.place  # found before the removal
    start.wait()
    try:
        ingest(place, [site.row(1)], actor=ROOT)
    except Problem as problem:
        refused.append(problem.code)


# What a manager script is given


def manager_sites(oci: Oci, headers: dict[str, str]) -> list[str]:
    answer = oci.client.get("/api/oci/manager/sites", headers=headers)
    assert answer.status_code == 200
    return [each["siteId"] for each in answer.json()]


def test_a_manager_script_gets_those_it_served_least_recently_first(shared, admin):
    names = [OwnSite(shared).id for _ in range(4)]
    for number, name in enumerate(names):
        shared.accounts.set_site_settings(ROOT, name, "oci", {"customer_id": f"000000000{number}"})
    shared.accounts.set_site(ROOT, names[3], channel="api")
    key, _ = shared.accounts.create_key(ROOT, "manager", ["oci:script"], all_sites=True)
    by_key = {"x-api-key": key}

    def beat(name: str, **more: Any) -> None:
        shared.clock.advance(1)
        body = {"siteId": name, **more}
        assert shared.client.post("/api/oci/script-heartbeat", json=body, headers=by_key).status_code == 200

    def order() -> list[str]:
        return [name for name in manager_sites(shared, by_key) if name in names]

    assert order() == names[:3]
    beat(names[0])
    beat(names[1], error="the account is not there")
    assert order() == [names[2], names[0], names[1]]  # one that fails lets others go first
    entry = shared.accounts.directory.metadata_entry("oci", names[1], "heartbeat")
    assert isinstance(entry, MetadataEntry)
    assert "at" not in json.loads(entry.value)  # it was not served
    one_site = shared.key("oci:script", site=names[0])
    assert manager_sites(shared, one_site) == [names[0]]
    assert shared.client.get("/api/oci/manager/sites", headers=shared.reader).status_code == 403
    for name in names:
        shared.accounts.set_site_settings(ROOT, name, "oci", {"customer_id": None})
