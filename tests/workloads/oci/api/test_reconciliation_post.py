"""A script posts what Google counts of its account."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from kesin.workloads.oci.reconciliation import read_figures, read_state
from tests.workloads.oci.own_site import DAY, OwnSite, ok, refused


def today(site: OwnSite) -> date:
    return datetime.fromtimestamp(site.clock.monotonic(), UTC).date()


def upload(site: OwnSite, back: int = 1, **changes: Any) -> dict[str, Any]:
    day = (today(site) - timedelta(days=back)).isoformat()
    counts = {"successful": 3, "failed": 0, "pending": 1}
    return {"action": "Sale", "client": "GOOGLE_ADS_WEB_CLIENT", "day": day, **counts, **changes}


def attributed(site: OwnSite, back: int = 1, **changes: Any) -> dict[str, Any]:
    day = (today(site) - timedelta(days=back)).isoformat()
    return {"action": "Sale", "day": day, "conversions": 2.25, **changes}


def post(site: OwnSite, headers: Any = None, **changes: Any) -> Any:
    body = {"zone": "UTC", "uploads": [upload(site)], "attributed": [attributed(site)]}
    return site.report("reconciliation", headers, **{**body, **changes})


def figures(site: OwnSite) -> list[tuple[Any, ...]]:
    return [tuple(one) for one in read_figures(site.place, date(2000, 1, 1), date(2100, 1, 1))]


def test_it_is_kept_beside_what_the_script_acknowledged(site: OwnSite):
    site.ack(site.claim(2))
    sent_on = today(site).isoformat()
    site.clock.advance(DAY)
    assert ok(post(site, uploads=[upload(site, action="Phone sale")], attributed=[])) == {"ok": True}
    assert figures(site) == [(sent_on, "Phone sale", 2, 3, 0, 1, None)]
    assert read_state(site.place)["zone"] == "UTC"
    ok(post(site))
    assert figures(site) == [(sent_on, "Phone sale", 2, None, None, None, None), (sent_on, "Sale", 0, 3, 0, 1, 2.25)]


def test_every_client_counts_for_a_script_since_its_own_is_not_known(site: OwnSite):
    site.ack(site.claim(10))
    site.clock.advance(2 * DAY)
    counts = {"action": "Phone sale", "successful": 4, "pending": 0}
    clients = ("GOOGLE_ADS_WEB_CLIENT", "UNKNOWN")
    ok(post(site, uploads=[upload(site, 2, client=name, **counts) for name in clients]))
    assert site.warnings() == ["TAKEN_TOO_FEW"]
    ok(post(site, uploads=[upload(site, 2, client=name, **counts) for name in (*clients, "X")]))
    assert site.warnings() == []


def test_what_is_wrong_is_refused_by_name_and_nothing_is_kept(site: OwnSite):
    cases: list[tuple[dict[str, Any], str]] = [
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"zone": "x" * 65}, "zone"),
        ({"zone": None}, "zone"),
        ({"uploads": [{}]}, "uploads.0.action"),
        ({"uploads": [upload(site, day="yesterday")]}, "uploads.0.day"),
        ({"uploads": [upload(site, successful=-1)]}, "uploads.0.successful"),
        ({"uploads": [upload(site, pending=10**9 + 1)]}, "uploads.0.pending"),
        ({"uploads": [upload(site, client="x" * 65)]}, "uploads.0.client"),
        ({"uploads": [upload(site, action="x" * 129)]}, "uploads.0.action"),
        ({"uploads": [upload(site, rate=0.5)]}, "uploads.0.rate"),
        ({"uploads": "none"}, "uploads"),
        ({"attributed": [attributed(site, conversions="many")]}, "attributed.0.conversions"),
        ({"attributed": [attributed(site, conversions=-0.5)]}, "attributed.0.conversions"),
    ]
    for changes, field in cases:
        assert field in str(refused(post(site, **changes), 422)["details"])
    site.change(channel="api")  # it is no more left to a script
    assert refused(post(site), 409)["code"] == "wrong_channel"
    assert (figures(site), read_state(site.place)) == ([], {})


def test_too_many_counts_are_refused(site: OwnSite):
    for kind, one in (("uploads", upload(site)), ("attributed", attributed(site))):
        ok(post(site, **{kind: [one] * 4_000}))
        refused(post(site, **{kind: [one] * 4_001}), 422)
