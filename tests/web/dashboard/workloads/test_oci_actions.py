"""The conversion actions of a site on its settings page: typed, looked up, removed."""

from typing import Any

import pytest

from kesin.workloads.oci.google.connection_check import channels_of
from tests.tables import table
from tests.web.conftest import ROOT, MakeWorld
from tests.web.dashboard.workloads.control_page import ControlPage
from tests.workloads.oci.fake_google import GoogleServer, Whole, error_body
from tests.workloads.oci.google_library import VERSION
from tests.workloads.oci.own_site import SECRET_KEYS

SALE = {"name-0": "Sale", "id-0": "987654321", "counting-0": "MANY_PER_CLICK"}
FORM = {**SALE, "lookback_days-0": "60", "default": "0", "name-1": " ", "lookback_days-1": "30"}
LEAD = {"name-1": "Lead", "id-1": "11", "counting-1": "ONE_PER_CLICK", "lookback_days-1": "7"}
PATH = "/conversion-actions"


@pytest.fixture
def control(make_world: MakeWorld) -> ControlPage:
    return ControlPage(make_world())


def kept(control: ControlPage) -> list[Any]:
    return [(one.name, one.id, one.default, one.counting, one.lookback_days) for one in control.site().settings.actions]


def test_actions_are_typed_and_an_admin_saves_them(control):
    assert control.post(PATH, data=FORM).status_code == 403
    assert control.post(PATH, "ayse", data={**FORM, **LEAD}).status_code == 303
    assert kept(control) == [
        ("Sale", "987654321", True, "MANY_PER_CLICK", 60),
        ("Lead", "11", False, "ONE_PER_CLICK", 7),
    ]
    page = control.get("/settings", "ayse").text
    assert 'name="name-2" value=""' in page
    assert page.count('<option value="ONE_PER_CLICK" selected>') == 1
    assert 'name="default" value="0" aria-label="Default: Sale" checked' in page
    seen = control.get("/settings").text
    assert 'value="Lead"' in seen
    assert "Save actions" not in seen
    settings = {"channel": "script", "recover_minutes": "45"}
    control.post("/settings", "ayse", data=settings)  # the other form leaves them
    assert len(kept(control)) == 2


def test_a_hundred_actions_fit_in_the_form(control):
    rows = [(f"{field}-{n}", value) for n in range(100) for field, value in (
        ("name", f"action {n}"), ("id", f"{n}"), ("counting", "MANY_PER_CLICK"),
        ("lookback_days", "30"),
    )]  # fmt: skip
    assert control.post(PATH, "ayse", data=dict(rows)).status_code == 303
    assert len(kept(control)) == 100
    assert 'name="name-100"' not in control.get("/settings", "ayse").text


@table("wrong", [{"id-0": "x"}, {"lookback_days-0": "91"}, {"lookback_days-0": ""}, {"counting-0": "OFTEN"}])
def test_what_is_wrong_is_said_with_what_was_typed(control, wrong):
    response = control.post(PATH, "ayse", data={**FORM, **wrong})
    assert response.status_code == 422
    assert "actions[0]." in response.text
    assert 'value="Sale"' in response.text
    assert kept(control) == []


def test_an_action_that_rows_wait_for_is_removed_only_by_who_says_so(control):
    control.post(PATH, "ayse", data={**FORM, **LEAD})
    [row] = control.rows(1)
    without_lead = {**FORM, **LEAD, "remove-1": "1"}
    without_sale = {**FORM, **LEAD, "remove-0": "1"}
    refused = control.post(PATH, "ayse", data=without_sale)
    assert refused.status_code == 422
    assert "waiting rows name Sale" in refused.text
    assert control.post(PATH, "ayse", data=without_lead).status_code == 303
    assert [name for name, *_ in kept(control)] == ["Sale"]
    control.post(PATH, "ayse", data={**FORM, "remove-0": "1", "confirm": "1"})
    assert kept(control) == []
    assert control.world.state(row) == "QUEUED"  # without a list, any name will do


def test_a_removed_action_rejects_its_rows_and_the_audit_log_says_who(control):
    control.post(PATH, "ayse", data={**FORM, **LEAD})
    [row] = control.rows(1)
    lines = control.world.said(
        lambda: control.post(PATH, "ayse", data={**FORM, **LEAD, "remove-0": "1", "confirm": "1"})
    )
    assert [(line.actor, line.action) for line in lines] == [("user:ayse", "oci.actions")]
    control.world.client.get(
        "/api/oci/google-ads-export?siteId=north&markAsExported=true",
        headers=control.world.key("oci:script", site="north"),
    )
    assert control.context.queue.job(row).error_code == "UNKNOWN_CONVERSION_NAME"


@pytest.fixture
def google():
    with GoogleServer() as server:
        channels_of.cache_clear()
        yield server
        channels_of.cache_clear()


@pytest.fixture
def at_google(make_world: MakeWorld, google: GoogleServer) -> ControlPage:
    """A site on the channel ``api``, and its Google."""
    world = make_world(
        secret_keys=SECRET_KEYS, oci_google_url=google.url, oci_google_version=VERSION, oci_token_url=google.token_url
    )
    control = ControlPage(world)
    world.accounts.set_site(ROOT, "north", channel="api")
    control.context.vault.put(ROOT, "oci/north", google.credentials().to_text())
    return control


def test_a_look_up_is_a_preview_that_saving_stores(at_google, google):
    at_google.post(PATH, "ayse", data={**FORM, **LEAD})
    google.listed_as = {"name": "Sale", "status": "ENABLED", "counting_type": "ONE_PER_CLICK"}
    google.actions = [
        {"id": "12", "name": "New", "status": "ENABLED"},
        {"id": "13", "name": "Off", "status": "REMOVED"},
    ]
    before = kept(at_google)
    page = at_google.post(f"{PATH}/lookup").text
    for words in ("new: New", "changed: Sale", "not enabled in Google Ads: Lead"):
        assert words in page
    assert "left out: Off (REMOVED)" in page
    assert kept(at_google) == before
    assert at_google.site().read_metadata("actions")["gone"] == []
    form = {**FORM, **LEAD, "gone-1": "Lead", "counting-0": "ONE_PER_CLICK"}
    form |= {"name-2": "New", "id-2": "12", "counting-2": "MANY_PER_CLICK", "lookback_days-2": "30"}
    assert at_google.post(PATH, "ayse", data=form).status_code == 303
    assert [name for name, *_ in kept(at_google)] == ["Sale", "Lead", "New"]
    assert kept(at_google)[0][2:4] == (True, "ONE_PER_CLICK")
    assert at_google.site().read_metadata("actions")["gone"] == ["Lead"]
    assert "not enabled in Google Ads" in at_google.get("/settings").text


def test_a_look_up_that_fails_says_why_and_honours_a_pause(at_google, google):
    google.refresh_token = "another"
    response = at_google.post(f"{PATH}/lookup")
    assert response.status_code == 503
    assert "INVALID_GRANT" in response.text
    google.reset()
    google.then(Whole(429, error_body(429, "RESOURCE_EXHAUSTED", "slow"), {"retry-after": "60"}))
    for _ in range(2):
        assert at_google.post(f"{PATH}/lookup").status_code == 503
    assert len(google.came) == 1  # the second was not sent
    assert at_google.post(f"{PATH}/lookup", "ece").status_code == 403
