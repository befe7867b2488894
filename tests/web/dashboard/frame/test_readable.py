"""Times in the reader's zone, the switch between zones, and the icons of the navigation."""

import re
from importlib.resources import files
from typing import Any

import pytest

from kesin.web.dashboard.frame.page import Link, WorkloadPages
from tests.web.conftest import ROOT, SAME_ORIGIN, World
from tests.web.dashboard.turkish import PAGES, TEMPLATES

ICONS = (files("kesin.web") / "dashboard" / "templates" / "icons.html").read_text("utf-8")
DRAWINGS = {drawn: name for name, drawn in re.findall(r"""^  "([\w-]+)": '(.+)',$""", ICONS, re.MULTILINE)}
NEW_YORK, ISTANBUL, TOKYO = "America/New_York", "Europe/Istanbul", "Asia/Tokyo"
CONTROL = "/dashboard/site/north/oci-control"


@pytest.fixture(scope="module")
def zoned(shared_world: World) -> World:
    """Ayşe, who sees all sites, Ece, who sees one; north keeps the time of Tokyo."""
    return with_zones(shared_world)


def with_zones(world: World) -> World:
    world.person("ayse", "admin")
    world.person("ece", sites=["south"])
    world.accounts.set_site(ROOT, "north", timezone=TOKYO)
    return world


def get(world: World, path: str, who: str = "ayse", **cookies: str) -> Any:
    headers = world.cookie(who)
    headers["cookie"] += "".join(f"; kesin_{name}={value}" for name, value in cookies.items())
    return world.client.get(path, headers=headers)


def offered(page: str) -> dict[str, bool]:
    """The choices of the time switch, and which of them is the current one."""
    switch = page.partition('<div id="zone"')[2].partition("</form>")[0]
    found = re.findall(r'name="clock" value="(\w+)" aria-pressed="(\w+)"', switch)
    return {name: pressed == "true" for name, pressed in found}


def said(page: str) -> str:
    """The zone that the page says it uses."""
    found = re.search(r'<details class="menu zone">\s*<summary title="([^"]+)"', page)
    assert found
    return found[1]


def audit_times(world: World, **cookies: str) -> list[str]:
    """The times in the log of changes, newest first; it begins on 14 Nov 2023 at 22:13:20 UTC."""
    page = get(world, "/dashboard/audit", **cookies).text
    return re.findall(r'<time [^>]*title="14 Nov 2023 22:13:20 UTC">([^<]+)</time>', page)


def test_times_are_in_the_zone_of_the_browser(zoned):
    assert set(audit_times(zoned)) == {"14 Nov 2023 22:13:20"}
    assert set(audit_times(zoned, zone=NEW_YORK)) == {"14 Nov 2023 17:13:20"}
    assert set(audit_times(zoned, zone=ISTANBUL)) == {"15 Nov 2023 01:13:20"}
    assert set(audit_times(zoned)) == {"14 Nov 2023 22:13:20"}  # a page leaves no zone behind


def test_a_zone_that_is_none_is_utc_and_is_not_repeated(zoned):
    for zone in ("Mars/Olympus", "../../etc/passwd", "", "%00", "><script>"):
        page = get(zoned, "/dashboard/password", zone=zone).text
        assert said(page) == "UTC", zone
        assert 'data-zone="UTC"' in page
        assert "><script>" not in page


def test_the_switch_offers_ones_own_time_and_utc_and_says_once_which_is_used(zoned):
    page = get(zoned, "/dashboard/audit", zone=ISTANBUL).text
    assert offered(page) == {"mine": True, "utc": False}
    assert said(page) == ISTANBUL
    assert '<span class="clip">Istanbul</span>' in page
    assert "UTC</time>" not in page
    page = get(zoned, "/dashboard/audit", zone=ISTANBUL, clock="utc").text
    assert (offered(page), said(page)) == ({"mine": False, "utc": True}, "UTC")
    assert set(audit_times(zoned, zone=ISTANBUL, clock="utc")) == {"14 Nov 2023 22:13:20"}
    assert offered(get(zoned, "/dashboard").text) == {"mine": True}  # at home in UTC


def test_a_page_about_a_site_offers_the_time_of_the_site(zoned):
    job = zoned.job("north")
    for path in (CONTROL, "/dashboard/queues/task?site=north", f"/dashboard/jobs/{job}"):
        page = get(zoned, path, zone=NEW_YORK).text
        assert offered(page) == {"mine": True, "utc": False, "site": False}, path
        assert said(page) == NEW_YORK
        page = get(zoned, path, zone=NEW_YORK, clock="site").text
        assert offered(page) == {"mine": False, "utc": False, "site": True}, path
        assert said(page) == TOKYO
    page = get(zoned, f"/dashboard/jobs/{job}", zone=NEW_YORK, clock="site").text
    assert 'title="14 Nov 2023 22:13:20 UTC">15 Nov 2023 07:13:20</time>' in page
    page = get(zoned, "/dashboard/queues/task", zone=NEW_YORK, clock="site").text
    assert (offered(page), said(page)) == ({"mine": True, "utc": False}, NEW_YORK)


def test_the_time_of_a_site_is_told_only_to_those_who_see_it(zoned):
    for path in (CONTROL, "/dashboard/queues/task?site=north", "/dashboard/queues/task?site=none"):
        page = get(zoned, path, "ece", zone=NEW_YORK, clock="site").text
        assert TOKYO not in page
        assert "site" not in offered(page)
    page = get(zoned, "/dashboard/queues/task", "ece", zone=NEW_YORK, clock="site").text
    assert said(page) == ISTANBUL  # south is all that she sees


def test_the_owner_of_a_job_in_a_queue_without_sites_is_no_site(zoned):
    job = zoned.service.queues["pdf"].enqueue({"html": "<p>"}, tenant="north").id
    page = get(zoned, f"/dashboard/jobs/{job}", zone=NEW_YORK).text
    assert offered(page) == {"mine": True, "utc": False}


def test_the_choice_is_kept_in_this_browser(zoned):
    fields = {"clock": "utc", "back": "/dashboard/audit"}
    answer = zoned.client.post("/dashboard/look", data=fields, headers=SAME_ORIGIN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/audit")
    assert answer.headers["set-cookie"].startswith("kesin_clock=utc;")
    refused = zoned.client.post("/dashboard/look", data={"clock": "x"}, headers=SAME_ORIGIN)
    assert refused.status_code == 422


def test_a_part_of_a_page_is_in_the_zone_of_the_page(world):
    zoned = with_zones(world)
    zoned.job("north")
    zoned.clock.advance(2 * 86_400)
    headers = zoned.cookie("ayse") | {"hx-request": "true"}
    headers["cookie"] += f"; kesin_zone={NEW_YORK}; kesin_clock=site"
    part = zoned.client.get("/dashboard/queues/task/rows?site=north", headers=headers).text
    assert part.count('title="14 Nov 2023 22:13:20 UTC">15 Nov 07:13</time>') == 2
    view = zoned.client.get("/dashboard/queues/task?site=north", headers=headers).text
    assert '<div id="zone" hx-swap-oob="morph">' in view


def test_files_keep_utc(zoned):
    zoned.job("north")
    text = get(zoned, "/dashboard/queues/task/rows.csv", zone=NEW_YORK).text
    assert "2023-11-14T22:13:20" in text


def test_every_time_has_the_exact_one_in_utc_on_hover():
    """What is shown beside it may be relative, or in any zone."""
    for file in TEMPLATES:
        for element in re.findall(r"<time [^>]*>", file.read_text("utf-8")):
            assert "| iso }}" in element, file
            assert re.search(r'title="\{\{ [^}]+ \| utc \}\}"', element), file


def test_before_the_first_page_the_zone_is_noted(zoned):
    client = zoned.client
    assert '<script src="/static/dashboard/zone.js" defer></script>' in client.get("/sign-in").text
    assert "kesin_zone=" in client.get("/static/dashboard/zone.js").text


def test_only_what_can_be_asked_for_again_is_shown_again_in_another_zone(zoned):
    assert " data-own-time>" in get(zoned, "/dashboard", zone=NEW_YORK).text
    assert " data-own-time>" not in get(zoned, "/dashboard", zone=NEW_YORK, clock="utc").text
    headers, wrong = zoned.cookie("ayse"), {"password": "x", "again": "y", "current": "z"}
    page = zoned.client.post("/dashboard/password", data=wrong, headers=headers)
    assert page.status_code == 422
    assert " data-own-time>" not in page.text


# The navigation


def icons_of(nav: str) -> dict[str, str]:
    found = re.findall(r'<a href="([^"]+)".*?<svg class="icon"[^>]*>(.*?)</svg>', nav, re.DOTALL)
    return {path: DRAWINGS[drawn] for path, drawn in found}


def test_every_entry_has_an_icon_and_a_workload_chooses_its_own(zoned, monkeypatch):
    icons = icons_of(get(zoned, "/dashboard/nav").text)
    assert icons["/dashboard"] == "overview"
    assert icons["/dashboard/queues/oci"] == "upload"
    assert icons["/dashboard/queues/pdf"] == icons["/dashboard/queues/pdf_batches"] == "document"
    assert icons["/dashboard/queues/task"] == "queue"
    assert icons[CONTROL] == "site"
    assert len(set(icons.values())) > 8

    def links(_ctx: Any) -> list[Link]:
        return [Link("One", "/dashboard/one"), Link("Two", "/dashboard/two", "add")]

    pages = zoned.app.state.frame.pages
    monkeypatch.setitem(pages, "task", WorkloadPages(links=links))
    icons = icons_of(get(zoned, "/dashboard/nav").text)
    assert (icons["/dashboard/one"], icons["/dashboard/two"]) == ("page", "add")
    monkeypatch.setitem(pages, "task", WorkloadPages(links=links, icon="board"))
    icons = icons_of(get(zoned, "/dashboard/nav").text)
    assert (icons["/dashboard/queues/task"], icons["/dashboard/one"]) == ("board", "board")


def test_no_page_names_an_icon_that_is_not_there():
    named = {name for file in TEMPLATES for name in re.findall(r'icon\("([\w-]+)"\)', file.read_text("utf-8"))}
    for folder in PAGES:
        for file in folder.rglob("*.py"):
            named |= set(re.findall(r'icon="([\w-]+)"', file.read_text("utf-8")))
    assert {"filter", "more", "document"} <= named <= set(DRAWINGS.values())


# Lists


def test_the_filter_button_counts_the_filters_in_use(zoned):
    zoned.job("north")
    for query, n in (("", 0), ("?state=ready", 0), ("?site=north", 1), ("?site=north&text=a", 2)):
        page = get(zoned, f"/dashboard/queues/task{query}").text
        button = re.search(r"<button [^>]*data-fold.*?</button>\s*<form ([^>]*)>", page, re.DOTALL)
        assert button
        assert 'class="filters"' in button[1]
        badges = re.findall(r'class="badge quiet">(\d+)<', button[0])
        assert badges == ([str(n)] if n else [])
