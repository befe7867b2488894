"""Several conversion actions a site: each row goes to its own, and a check asks Google."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.foundation.clock import iso
from kesin.workloads.oci.google.connection_check import channels_of, check_site
from tests.workloads.oci.action_lists import ENABLED, LEAD, SALE, SALE_AT_GOOGLE, give, posted
from tests.workloads.oci.fake_google import GoogleServer, Wrong, refusal
from tests.workloads.oci.own_site import HOUR, ApiSite

# Sending


def at_google(google: GoogleServer, *entries: dict[str, Any]) -> None:
    """Let Google have these actions beside its first."""
    google.actions = [
        {"status": ENABLED, "id": one["id"], "name": one["name"], **_google_names(one)} for one in entries
    ]


def _google_names(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "counting_type": entry.get("counting", "MANY_PER_CLICK"),
        "click_through_lookback_window_days": entry.get("lookback_days", 30),
    }


def test_each_row_goes_to_its_own_action_in_one_request(api: ApiSite):
    at_google(api.google, LEAD)
    give(api, SALE, LEAD)
    # Two conversions of one click and second are twins only for the same action.
    api.post([
        api.row(1),
        api.row(2, conversionName="Lead", gclid=api.row(1)["gclid"],
                conversionTime=api.row(1)["conversionTime"]),
    ])  # fmt: skip
    assert api.turn() == {"COMPLETED": 2}
    [sent] = [upload for upload in api.google.uploads if upload]
    assert [one["conversionAction"].rpartition("/")[2] for one in sent] == ["987654321", "11"]


def test_data_manager_names_exactly_one_destination_an_event_and_ten_a_request(make_api: Callable[..., ApiSite]):
    api = make_api("data_manager")
    more = [{**LEAD, "name": f"Lead {n}", "id": f"{100 + n}"} for n in range(12)]
    at_google(api.google, *more)
    give(api, SALE, *more)
    api.post([api.row(n, conversionName=f"Lead {n % 12}") for n in range(30)])
    api.post([api.row(99)])
    assert api.turn() == {"COMPLETED": 31}
    bodies = [came.body for came in api.google.came if came.path == "/v1/events:ingest"]
    assert [len(body["destinations"]) for body in bodies] == [10, 3]
    for body in bodies:
        references = [to["reference"] for to in body["destinations"]]
        assert len(set(references)) == len(references)
        assert all(len(event["destinationReferences"]) == 1 for event in body["events"])
    ids = {job.payload["orderId"]: job.payload["conversionName"] for job in api.jobs()}
    known = {action.name: action.id for action in api.place.settings.actions}
    assert api.google.recorded_for == {order: [known[name]] for order, name in ids.items()}


def test_two_names_of_one_action_are_one_destination(make_api: Callable[..., ApiSite]):
    api = make_api("data_manager")
    give(api, SALE, {**SALE, "name": "Its old name", "default": False})
    api.post([api.row(1), api.row(2, conversionName="Its old name")])
    assert api.turn() == {"COMPLETED": 2}
    [body] = [came.body for came in api.google.came if came.path == "/v1/events:ingest"]
    assert [to["reference"] for to in body["destinations"]] == ["987654321"]


def test_a_destination_that_google_refuses_fails_its_own_rows_only(make_api: Callable[..., ApiSite]):
    api = make_api("data_manager")
    give(api, SALE, LEAD)  # Google knows the first alone
    api.post([api.row(1), api.row(2, conversionName="Lead"), api.row(3)])
    assert api.turn() == {"COMPLETED": 2, "FAILED": 1}
    [failed] = [job for job in api.jobs() if job.state == "FAILED"]
    assert failed.payload["conversionName"] == "Lead"
    assert (failed.error_category, api.breaker().kind) == ("AUTH", "")


def test_an_action_that_vanished_at_google_does_not_stop_the_others(make_api: Callable[..., ApiSite]):
    sites = []
    for channel in ("api", "data_manager"):
        for default in ("Phone sale", "Lead"):
            sites.append(make_api(channel))
            give(sites[-1], *({**one, "default": one["name"] == default} for one in (SALE, LEAD)))
    for n, site in enumerate(sites):
        site.post([site.row(n, conversionName="Lead")])  # alone in its request; Google has no Lead
    assert sites[0].turn() == {"FAILED": 4}
    assert {site.breaker().kind for site in sites} == {""}
    sites[0].clock.advance(HOUR)
    for n, site in enumerate(sites):
        site.post([site.row(10 + n)])
    assert sites[0].turn() == {"COMPLETED": 4}


def test_the_only_action_of_a_list_or_all_of_them_open_the_breaker(make_api: Callable[..., ApiSite]):
    sites = []
    for channel in ("api", "data_manager"):
        for actions in ([LEAD], [LEAD, {**LEAD, "name": "Call"}]):
            sites.append(make_api(channel))
            give(sites[-1], *actions)
    for n, site in enumerate(sites):
        site.post([site.row(n, conversionName="Lead")])
    sites[0].turn()
    assert {site.breaker().kind for site in sites} == {"AUTH"}


def test_a_twin_under_another_name_of_the_same_action_is_not_completed(api: ApiSite):
    give(api, SALE, {**SALE, "name": "Its old name", "default": False})
    first = api.row(1)
    other = {key: first[key] for key in ("gclid", "conversionTime")}
    second = api.row(2, conversionName="Its old name", **other)
    api.post([first, second])
    assert api.turn() == {"COMPLETED": 1, "FAILED": 1}
    [failed] = [job for job in api.jobs() if job.state == "FAILED"]
    assert failed.error_code == "CLICK_CONVERSION_ALREADY_EXISTS"


def test_a_site_that_moves_to_the_api_and_on_keeps_its_actions_and_its_rows(make_api: Callable[..., ApiSite]):
    api = make_api("api")
    api.change(channel="script")
    at_google(api.google, LEAD)
    posted(api, SALE_AT_GOOGLE, {"name": "Lead", "id": "11", "lookbackDays": 7})
    actions = api.place.settings.actions
    api.post([api.row(n, conversionName=(n % 2 and "Lead") or "Phone sale") for n in range(4)])
    for channel in ("api", "data_manager"):
        api.change(channel=channel)
        assert api.place.settings.actions == actions
    assert api.turn() == {"COMPLETED": 4}
    sent = sorted(to for [to] in api.google.recorded_for.values())
    assert sent == ["11", "11", "987654321", "987654321"]


NAMES = [f"action {n}" for n in range(13)]


@settings(max_examples=settings.default.max_examples // 6, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("post"), st.sampled_from([*NAMES, ""])),
            st.tuples(st.just("set"), st.permutations(range(13))),
            st.tuples(st.sampled_from(["api", "data_manager", "script"]), st.just(0)),
            st.tuples(st.just("turn"), st.just(0)),
        ),
        max_size=25,
    )
)
def test_no_row_is_ever_sent_to_another_action_than_it_names(shared_api, google_server, steps):
    google_server.reset()
    channels_of.cache_clear()
    api = ApiSite(shared_api, google_server)
    at_google(google_server, *({**LEAD, "name": f"a{n}", "id": f"{500 + n}"} for n in range(13)))
    number = itertools.count(1)
    sent: dict[str, set[str]] = {}  # the ids that each name has had when rows went out
    give(api, *({"name": name, "id": f"{500 + n}"} for n, name in enumerate(NAMES)))
    for kind, value in [*steps, ("api", 0), ("turn", 0)]:
        if kind == "post":
            api.post([api.row(next(number), conversionName=value or None)])
        elif kind == "set":  # other ids, and the last of them are no actions any more
            chosen = list(zip(NAMES, value, strict=True))[:9]
            give(api, *({"name": n, "id": f"{500 + k}", "default": not k} for n, k in chosen))
        elif kind == "turn":
            seen = dict.fromkeys(google_server.recorded)
            known = {action.name: action.id for action in api.place.settings.actions}
            api.clock.advance(HOUR)
            api.turn()
            payloads = {job.payload["orderId"]: job.payload for job in api.jobs()}
            for order, row in google_server.recorded.items():
                if order not in seen and order in payloads:
                    to = google_server.recorded_for.get(order) or [row["conversionAction"].rpartition("/")[2]]
                    assert to == [known[payloads[order]["conversionName"]]]
                    sent.setdefault(payloads[order]["conversionName"], set()).update(to)
        else:
            api.change(channel=kind)
    api.change(channel="script")
    shared_api.retire_rows()
    channels_of.cache_clear()


# The look-up, and the check


def found(api: ApiSite) -> dict[str, tuple[bool, str]]:
    findings = check_site(api.place)
    return {re.split(r":| \(", one.detail)[0]: (one.ok, one.advice) for one in findings}


@pytest.mark.parametrize("channel", ["api", "data_manager"])
def test_a_check_compares_the_actions_with_googles(make_api: Callable[..., ApiSite], channel: str):
    api = make_api(channel)
    at_google(api.google, LEAD, {"name": "Another", "id": "12"})
    give(api, SALE, LEAD)
    assert found(api)["conversion actions listed by Google Ads"] == (True, "")
    give(api, {**SALE, "lookback_days": 60, "default": False}, LEAD, {"name": "Gone", "id": "987654321"})
    checks = found(api)
    wrong = {name for name, (fine, advice) in checks.items() if not fine and advice}
    assert wrong == {"there is no default action", "not enabled in Google Ads", "different in Google Ads"}
    api.google.listed_as["status"] = "REMOVED"
    assert found(api)["not enabled in Google Ads"][0] is False


def test_a_check_of_a_script_site_says_where_its_list_is_from(api: ApiSite):
    give(api, SALE)
    api.change(channel="script")
    entered = "conversion actions entered here, not yet reported by a script"
    assert found(api)[entered] == (True, "")
    posted(api, SALE_AT_GOOGLE)
    hour = str(iso(api.place.queue.now()))[:13]
    reported = f"conversion actions last reported by the script, at {hour}"
    assert found(api)[reported] == (True, "")


def test_a_check_says_when_google_does_not_list_them_and_closes_the_breaker_all_the_same(api: ApiSite):
    give(api, SALE)
    api.google.then(api_answer := refusal(401, "UNAUTHENTICATED", Wrong(
        "authentication_error", "OAUTH_TOKEN_INVALID", "")), api_answer)  # fmt: skip
    api.enqueue(1)
    api.turn()
    assert api.breaker().kind == "AUTH"
    wrong = Wrong("authorization_error", "USER_PERMISSION_DENIED", "")

    def trial(_row: Any) -> tuple[Wrong, ...]:
        api.google.then(refusal(403, "PERMISSION_DENIED", wrong))  # of the search that follows
        return ()

    api.google.row_errors = trial
    findings = found(api)
    ok_, advice = findings["Google did not list the conversion actions"]
    assert (ok_, "adwords" in advice) == (False, True)
    assert api.breaker().kind == ""
