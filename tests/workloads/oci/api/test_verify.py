"""The handshake: a five-minute token in place of a key."""

from typing import Any

import pytest

from kesin.foundation.clock import iso
from tests.web.conftest import ROOT
from tests.workloads.oci import own_site
from tests.workloads.oci.conftest import bare
from tests.workloads.oci.own_site import OwnSite, refused, well

shared, site, neighbour = own_site.shared, own_site.site, own_site.neighbour


def verify(site: OwnSite, headers: Any = None, **fields: Any) -> Any:
    body = {"siteId": site.id, **fields}
    return site.client.post("/api/oci/v2/verify", json=body, headers=headers or site.script)


def bearer(site: OwnSite) -> dict[str, str]:
    return {"authorization": f"Bearer {well(verify(site))['session_token']}"}


def test_a_key_gets_a_token_for_five_minutes(site: OwnSite):
    body = well(verify(site))
    assert list(body) == ["session_token", "expires_at", "site_id"]
    assert body["site_id"] == site.id
    site.wait(300)
    assert body["expires_at"] == iso(site.clock.time_us)


def test_a_token_does_all_that_the_script_does(site: OwnSite):
    ids = site.queued(2)
    token = bearer(site)
    assert bare(well(site.ask_export(token, markAsExported="true"))) == ids
    assert site.ack(ids[:1], token)["updated"] == 1
    body = {"siteId": site.id, "queueIds": [f"seal_{ids[1]}"]}
    failed = site.client.post("/api/oci/ack-failed", json=body, headers=token)
    assert well(failed)["updated"] == 1
    beat = {"siteId": site.id}
    assert site.client.post("/api/oci/script-heartbeat", json=beat, headers=token).is_success


def test_a_token_is_taken_as_a_key_header_too(site: OwnSite):
    token = well(verify(site))["session_token"]
    assert site.ask_export({"x-api-key": token}).is_success


def test_a_token_ends_with_its_five_minutes(site: OwnSite):
    token = bearer(site)
    site.wait(299)
    assert site.ask_export(token).is_success
    site.wait(1)
    assert refused(site.ask_export(token), 401)["code"] == "wrong_key"


def test_a_token_ends_with_its_key(site: OwnSite):
    key = site.oci.raw_key("oci:script", site=site.id)
    body = well(verify(site, {"x-api-key": key}))
    token = {"authorization": f"Bearer {body['session_token']}"}
    assert site.ask_export(token).is_success
    site.oci.revoke(key)
    assert site.ask_export(token).status_code == 401


def test_a_token_opens_no_more_than_its_key(site: OwnSite, neighbour: OwnSite):
    token = bearer(site)
    assert refused(neighbour.ask_export(token), 403)["message"] == "this site is not yours"
    for method, path in (
        ("GET", f"/api/oci/queue-stats?siteId={site.id}"),
        ("GET", f"/api/oci/dead-letter.csv?siteId={site.id}"),
        ("POST", f"/api/oci/conversions?siteId={site.id}"),
        ("POST", "/api/cron/oci/attempt-cap"),
    ):
        sent = {"json": []} if method == "POST" else {}
        assert site.send(method, path, token, **sent).status_code == 403, path


def test_what_a_token_does_is_done_by_its_key(site: OwnSite):
    [job_id] = site.queued()
    site.ask_export(bearer(site), markAsExported="true")
    by_token = site.events(job_id)[-1].actor
    site.ack([job_id])
    assert by_token == site.events(job_id)[-1].actor


def test_the_site_may_be_named_by_its_dashed_uuid(site: OwnSite):
    assert well(verify(site, siteId=site.uuid))["site_id"] == site.id


@pytest.mark.parametrize("headers", [{"x-api-key": "wrong"}, {"authorization": "Bearer wrong"}])
def test_a_wrong_key_gets_no_token(site: OwnSite, headers: dict):
    assert refused(verify(site, headers), 401)["code"] == "wrong_key"


@pytest.mark.parametrize("token", ["", "kesin_session_", "x" * 500])
def test_a_made_up_token_opens_nothing(site: OwnSite, token: str):
    answer = site.client.get(
        f"/api/oci/google-ads-export?siteId={site.id}",
        headers={"authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 401


def test_a_person_gets_no_token(site: OwnSite):
    site.oci.known("boss", "admin")
    answer = verify(site, site.oci.cookie("boss"))
    assert refused(answer, 403)["message"] == "only a key gets such a token"


def test_another_kind_of_key_gets_no_token(site: OwnSite):
    for scope in ("read", "operate", "oci:ingest"):
        answer = verify(site, site.oci.key(scope, site=site.id))
        assert refused(answer, 403)["details"] == {"needs": "oci:script"}


def test_the_token_is_not_kept_as_it_is(site: OwnSite):
    token = well(verify(site))["session_token"]
    kept = [line.details for line in site.oci.accounts.audit(ROOT, limit=1_000)]
    assert not [one for one in kept if one and token in one]
    assert site.oci.accounts.directory.session(token) is None
