"""The handshake: a five-minute token in place of a key. Who gets none is in the matrix."""

from typing import Any

from kesin.foundation.clock import iso
from tests.web.conftest import ROOT
from tests.workloads.oci.own_site import NOWHERE, OwnSite, bare, ok, refused, seals


def verify(site: OwnSite, headers: Any = None, **fields: Any) -> Any:
    return site.report("v2/verify", headers, **fields)


def bearer(site: OwnSite, headers: Any = None) -> dict[str, str]:
    return {"authorization": f"Bearer {ok(verify(site, headers))['session_token']}"}


def test_a_key_gets_a_token_for_five_minutes(site: OwnSite):
    body = ok(verify(site, siteId=site.uuid))
    assert list(body) == ["session_token", "expires_at", "site_id"]
    assert body["site_id"] == site.id
    assert site.request_export({"x-api-key": body["session_token"]}).is_success
    token = {"authorization": f"Bearer {body['session_token']}"}
    site.wait(299)
    assert site.request_export(token).is_success
    site.wait(1)
    assert body["expires_at"] == iso(site.clock.time_us)
    assert refused(site.request_export(token), 401)["code"] == "wrong_key"


def test_a_token_does_all_that_the_script_does_in_the_name_of_its_key(site: OwnSite):
    ids = site.enqueue(3)
    token = bearer(site)
    assert bare(ok(site.request_export(token, markAsExported="true"))) == ids
    assert ok(site.report("ack", token, queueIds=seals(ids[:1])))["updated"] == 1
    assert ok(site.report("ack-failed", token, queueIds=seals(ids[1:2])))["updated"] == 1
    assert site.report("script-heartbeat", token).is_success
    ok(site.report("ack", queueIds=seals(ids[2:])))
    by_token, by_key = site.events(ids[2])[-2:]
    assert by_token.actor == by_key.actor


def test_a_token_ends_with_its_key(site: OwnSite):
    key = site.oci.raw_key("oci:script", site=site.id)
    token = bearer(site, {"x-api-key": key})
    assert site.request_export(token).is_success
    site.oci.revoke(key)
    assert site.request_export(token).status_code == 401


def test_a_token_may_do_no_more_than_its_key(site: OwnSite, neighbour: OwnSite):
    token = bearer(site)
    assert refused(neighbour.request_export(token), 403)["message"] == "you have no access to this site"
    for path in (f"queue-stats?siteId={site.id}", f"dead-letter.csv?siteId={site.id}"):
        assert site.request("GET", path, token).status_code == 403, path
    for path in (f"oci/conversions?siteId={site.id}", "cron/oci/attempt-cap"):
        response = site.client.post(f"/api/{path}", json=[], headers=token)
        assert response.status_code == 403, path


def test_a_wrong_key_or_token_is_refused(site: OwnSite):
    tokens = [f"Bearer {one}" for one in ("", "wrong", "kesin_session_", "x" * 500)]
    for headers in ({"x-api-key": "wrong"}, *({"authorization": one} for one in tokens)):
        assert verify(site, headers).status_code == 401
        assert site.request_export(headers).status_code == 401


def test_the_token_itself_is_stored_nowhere(site: OwnSite):
    token = ok(verify(site))["session_token"]
    details = [line.details for line in site.oci.accounts.audit(ROOT, limit=1_000)]
    assert not [text for text in details if text and token in text]
    assert site.oci.accounts.directory.session(token) is None


def test_only_a_key_with_the_scope_of_a_route_and_its_site_is_let_in(site: OwnSite, neighbour: OwnSite):
    """The matrix of the web has every caller; by default it sends a sample of them."""
    bodies: dict[str, dict[str, Any]] = {
        "script-heartbeat": {},
        "v2/verify": {},
        "ack": {"queueIds": []},
        "ack-failed": {"queueIds": []},
        "actions": {"actions": []},
        "reconciliation": {"zone": "UTC", "uploads": [], "attributed": []},
        "adjustments": {"adjustments": []},
        "queue-actions": {"action": "MARK_FAILED", "ids": [NOWHERE]},
    }
    good = {"adjustments": site.producer, "queue-actions": site.operator}
    for path, body in bodies.items():
        mine = good.get(path, site.script)
        assert site.report(path, mine, **body).status_code == 200, path
        for other in (site.producer, site.script, site.operator, site.reader):
            assert other == mine or site.report(path, other, **body).status_code == 403, path
        for named in (neighbour.id, "nowhere"):
            error = refused(site.report(path, mine, siteId=named, **body), 403)
            assert error["message"] == "you have no access to this site"
    site.oci.known("boss", "admin")
    response = verify(site, site.oci.cookie("boss"))
    assert refused(response, 403)["message"] == "only an API key can get such a token"
