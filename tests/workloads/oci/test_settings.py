"""The settings of a site, and those of all sites."""

from typing import Any

import pytest

from kesin.foundation.problems import Forbidden, Invalid
from kesin.workloads.oci.lifecycle import limits_of, oci_lifecycle, with_settings
from kesin.workloads.oci.site import CHOICES, FLAGS, SiteSettings, require_site, validate_settings, visible_sites
from tests.web.conftest import actor
from tests.workloads.oci.own_site import Oci, OwnSite

# One site


def test_settings_have_defaults_and_are_kept_and_unknown_ones_are_skipped(site: OwnSite):
    assert site.place.settings == SiteSettings(15, None, "")
    site.change_settings(recover_minutes=45, silent_hours=3, conversion_name="Call")
    assert site.place.settings == SiteSettings(45, 3, "Call")
    site.change_settings(silent_hours=None, something_else=True)
    assert site.place.settings == SiteSettings(45, None, "Call")


def test_valid_settings_are_taken():
    for changes in (
        {},
        {"recover_minutes": 1, "silent_hours": 1, "conversion_name": "x"},
        {"recover_minutes": 1_440, "silent_hours": 720, "conversion_name": "x" * 100},
        dict.fromkeys(["recover_minutes", "silent_hours", "conversion_name", "consent_required"]),
        {"consent_default": "granted", "consent_required": True, "phone_country": "TR", "send_after_hours": 0},
        {"consent_default": "denied", "consent_required": False, "phone_country": "DE", "send_after_hours": 168},
        dict.fromkeys(["consent_default", "phone_country", "send_after_hours"]),
        {"script_columns": True, "enhanced": True},
    ):
        assert validate_settings(changes) == changes


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("recover_minutes", [0, 1_441, "15", True]),
        ("silent_hours", [721, 1.5, [], {}, float("nan")]),
        ("conversion_name", ["x" * 101, "two\nlines", 5, [], {}]),
        ("consent_default", ["", "yes", True]),
        ("phone_country", ["", "tr", "XX", 90]),
        ("send_after_hours", [-1, 169, "6", 1.5, True]),
        *((name, [[], {}, float("nan"), 1, "?"]) for name in (*CHOICES, "consent_default")),
        *((name, [[], {}, float("nan"), 1, "yes"]) for name in FLAGS),
        ("colour", ["red"]),
    ],
)
def test_invalid_settings_are_refused_by_name(name: str, values: list[Any]):
    for value in values:
        with pytest.raises(Invalid) as caught:
            validate_settings({name: value})
        assert caught.value.details == {"field": name}


def test_blanks_around_a_conversion_name_are_left_out():
    stored = validate_settings({"conversion_name": " Phone sale ", "enhanced": True})
    assert stored == {"conversion_name": "Phone sale", "enhanced": True}


def test_the_site_adds_its_zone_currency_and_name(site: OwnSite):
    site.change(timezone="Europe/Berlin", currency="EUR")
    site.change_settings(conversion_name="Call")
    defaults = site.place.defaults
    assert (defaults.site, str(defaults.zone)) == (site.id, "Europe/Berlin")
    assert (defaults.currency, defaults.name) == ("EUR", "Call")


# Metadata


def test_metadata_is_what_was_last_put(site: OwnSite, neighbour: OwnSite):
    assert site.place.read_metadata("heartbeat") is None
    site.place.put_metadata("heartbeat", {"at": 1})
    site.place.put_metadata("heartbeat", {"at": 2})
    assert site.place.read_metadata("heartbeat") == {"at": 2}
    assert site.place.read_metadata("breaker") is None
    assert neighbour.place.read_metadata("heartbeat") is None


# Permissions


def test_an_actor_with_the_permission_and_the_site_is_let_in(site: OwnSite):
    known = actor(role="viewer", sites=frozenset({site.id}))
    for named in (site.id, site.uuid, site.uuid.upper()):
        found = require_site(site.context, known, named, "operate", "read", action="tests")
        assert found.id == site.id


def test_an_actor_with_single_sites_learns_nothing_of_others(site: OwnSite, neighbour: OwnSite):
    known = actor(role="operator", sites=frozenset({site.id}))
    messages = set()
    for named in (neighbour.id, neighbour.uuid, "nowhere", site.id + "x"):
        with pytest.raises(Forbidden) as caught:
            require_site(site.context, known, named, "read", action="tests")
        messages.add(caught.value.message)
    assert len(messages) == 1


def test_a_refused_site_leaves_an_audit_line(site: OwnSite, neighbour: OwnSite):
    known = actor("user:nur", role="operator", sites=frozenset({site.id}))

    def ask() -> None:
        with pytest.raises(Forbidden):
            require_site(site.context, known, neighbour.id, "operate", action="oci.rows")

    [line] = site.audit_lines(ask)
    assert (line.actor, line.action, line.allowed) == ("user:nur", "oci.rows", False)
    assert (line.queue, line.site) == ("oci", neighbour.id)


def test_visible_sites_are_those_whose_rows_may_be_seen(site: OwnSite, neighbour: OwnSite):
    known = actor(sites=frozenset({site.id}))
    assert [place.id for place in visible_sites(site.context, known)] == [site.id]
    everybody = {place.id for place in visible_sites(site.context, actor(all_sites=True))}
    assert everybody >= {site.id, neighbour.id}
    assert visible_sites(site.context, actor(all_sites=True, queues=frozenset({"pdf"}))) == []


# All sites


def test_the_caps_and_the_revival_are_settings(shared: Oci, monkeypatch: pytest.MonkeyPatch):
    changes = {"oci_max_attempts_script": 3, "oci_max_attempts_api": 4, "oci_revive": False}
    limits = limits_of(shared.settings.model_copy(update=changes))
    channels = ("script", "api", "data_manager")
    assert [limits.max_attempts(channel) for channel in channels] == [3, 4, 4]
    moves = {move.name for move in oci_lifecycle(limits).moves}
    assert {move.name for move in oci_lifecycle().moves} - moves == {"revive"}
    monkeypatch.setenv("KESIN_OCI_REVIVE", "false")
    assert "revive" not in with_settings(oci_lifecycle).actions
