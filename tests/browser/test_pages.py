"""Every page there is: wide and on a phone, light and dark, in English and in Turkish.

The rooms are furnished with probes: whatever others wrote is shown as it is and never runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from kesin.workloads.pdf.services import load_templates
from tests.browser.checking import (
    PHONE,
    complaints,
    english,
    seen_in_every_look,
    shaped_well,
    show,
    sized,
    too_small,
    too_wide,
)
from tests.browser.conftest import NAMES
from tests.browser.furniture import SITE, Furniture, furnish
from tests.browser.pages import CONTROL, DIALOG, NAMED, OPENED, PAGES, PARTS, TOLD_AFTERWARDS, Say
from tests.browser.served import Served
from tests.web.conftest import ROOT, World
from tests.web.dashboard.turkish import TEMPLATES, catalogue, template_name
from tests.web.matrix import doors
from tests.workloads.optiplan.orders_ready import held_order

VENDOR = Path(__file__).parent / "vendor"
PROBE = "\"'><img src=x onerror=window.__hacked=1><script>window.__hacked=1</script>{{7*7}}"
GONE = r"status of 404 .*nowhere/at/all"
Language = Literal["en", "tr"]


@pytest.fixture(scope="module")
def furnished(served: Served) -> Furniture:
    world = served.world
    world.known("ayse", "admin", all_sites=True)
    world.accounts.set_site(ROOT, SITE, name=f"North{PROBE}")
    found = furnish(world, PROBE)
    world.service.commands.pause(ROOT, "task", reason=f"a pause{PROBE}")
    world.accounts.note(ROOT, "job.unmask", queue="task", target=f"target{PROBE}"[:120])
    return found


@pytest.fixture(scope="module")
def carried(served: Served, furnished: Furniture) -> set[str]:
    """What is told in the language of whoever made it: errors of jobs, the words of a template."""
    jobs = [job for queue in served.world.service.queues.values() for job in queue.jobs().jobs]
    book = load_templates(served.world.settings)
    templates = [book.get(name) for name in book.names]
    words = re.findall(
        r'"(?:title|description)": "([^"]+)"',
        json.dumps([one.schema for one in templates], ensure_ascii=False),
    )
    return {job.error_message[:20] for job in jobs if job.error_message} | set(words)


def speaks(page: Page, language: Language) -> Say:
    """From now on the pages are in this language."""
    address = "/".join(page.url.split("/")[:3])  # the rest would be the cookie's path
    cookie = {"name": "kesin_language", "value": language, "url": address}
    page.context.add_cookies([cookie])  # type: ignore[list-item]
    return catalogue(language).gettext


_SEEN = """() => {
  for (const one of document.querySelectorAll("details:not(.menu)")) one.open = true;
  return {
    title: document.title,
    heading: [...document.querySelectorAll("h1")].map((one) => one.textContent.trim()),
    language: document.documentElement.lang,
    contents: document.querySelectorAll("main").length,
    here: document.querySelectorAll("nav.side [aria-current=page]").length,
    html: document.documentElement.outerHTML,
    hacked: [...document.querySelectorAll("img[src=x]")].length > 0 || "__hacked" in window,
  };
}"""


def seen(page: Page, language: str) -> str:
    """The page with all that was folded, once it is known to be one of ours.

    It has a title, one heading and the language it says. A probe that became markup would ask for
    an image, and the policy would tell of a script.
    """
    found = page.evaluate(_SEEN)
    assert re.search(r"\S+ · Kesin$", found["title"])
    assert len(found["heading"]) == found["contents"] == 1
    assert found["heading"][0]
    assert "49" not in found["heading"][0] + found["title"]
    assert found["language"] == language
    assert found["here"] < 2
    assert not found["hacked"]
    return found["html"]


def closed(page: Page) -> None:
    page.keyboard.press("Escape")
    page.locator("details.menu").evaluate_all("all => all.forEach((one) => { one.open = false; })")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_every_route_is_a_page_to_look_at_or_said_to_be_none(world: World):
    there = {path for method, path in doors(world.app) if method == "GET"}
    there = {path for path in there if path.startswith("/dashboard")}
    assert there == PAGES.keys() | PARTS


def test_every_sheet_is_opened():
    sheets = {template_name(file) for file in TEMPLATES if "<dialog" in file.read_text("utf-8")}
    assert sheets == {one.template for one in OPENED if one.template} | TOLD_AFTERWARDS


@pytest.mark.parametrize("name", NAMED)
def test_a_page_is_fit_to_be_used(name, furnished, carried, admins_tab, *, judge, watcher):
    watcher.expects(GONE)
    page, path = admins_tab, NAMED[name](furnished)
    page.goto(path)
    show(judge, seen(page, "en"))
    assert seen_in_every_look(judge) == []
    for one in OPENED:
        if one.page == name:
            one.open(page, str)
            expect(page.locator(one.within)).to_be_visible()
            show(judge, seen(page, "en"))
            assert seen_in_every_look(judge, one.within) == []
            closed(page)

    say = speaks(page, "tr")
    page.goto(path)
    show(judge, seen(page, "tr"))
    assert english(judge, carried) == []
    assert shaped_well(judge) == []
    for one in OPENED:
        if one.page == name:
            one.open(page, say)
            expect(page.locator(one.within)).to_be_visible()
            show(judge, seen(page, "tr"))
            assert english(judge, carried) == []
            assert shaped_well(judge, one.within) == []
            closed(page)


def _built(html: str) -> list[tuple[str, ...]]:
    """How the content of a page is built, whatever its texts say."""
    content = html.partition("<main")[2]
    return re.findall(r"<(\w+)(?:[^>]*?\b(class|type|role)=\"([^\"]*)\")?", content)


@pytest.mark.parametrize(("role", "language"), [("viewer", "tr"), ("operator", "en")])
def test_what_others_see_is_fit_to_be_used_too(role, language, furnished, carried, world, *, judge):
    """Only pages that are built differently for them are judged again."""
    who = world.known(NAMES[role], role, all_sites=True)
    admin, them = world.cookie("ayse"), world.cookie(who)
    them["cookie"] += f"; kesin_language={language}"
    judged = []
    for where in NAMED.values():
        path = where(furnished)
        html = world.client.get(path, headers=them).text
        built = _built(html)
        if built in judged or built == _built(world.client.get(path, headers=admin).text):
            continue
        judged.append(built)
        show(judge, html)
        assert shaped_well(judge) == [], path
        assert language == "en" or english(judge, carried) == [], path
    assert len(judged) > 3  # a queue, a job, the orders, a page that is not for them


# What was done


@pytest.mark.parametrize("language", ["en", "tr"])
def test_a_sheet_that_tells_what_was_done_is_fit_to_be_used(
    language, furnished, carried, world, admins_tab, *, judge
):
    held = held_order(world.service)
    page = admins_tab
    page.goto("/dashboard")
    say = speaks(page, language)
    page.goto(f"{CONTROL}?status=FAILED")
    page.locator("input[data-pick]").first.check()
    page.get_by_role("button", name=say("Retry"), exact=True).click()
    _told_in_a_sheet(page, say, carried, judge)
    page.goto("/dashboard/optiplan")
    page.locator(f"#held-{held}").get_by_role("button", name=say("Approve")).click()
    _told_in_a_sheet(page, say, carried, judge)


def _told_in_a_sheet(page: Page, say: Say, carried: set[str], judge: Page) -> None:
    dialog = page.get_by_role("dialog")
    dialog.locator("button.first").click()
    expect(dialog.get_by_role("button", name=say("Close"))).to_be_visible()
    language = "en" if say("Close") == "Close" else "tr"
    show(judge, seen(page, language))
    assert seen_in_every_look(judge, DIALOG) == []
    assert language == "en" or english(judge, carried) == []
    closed(page)


# Probes


def test_the_probes_are_really_shown(furnished, admins_tab):
    page = admins_tab
    there = {}
    for name in (
        "nothing matches",
        "sites",
        "keys",
        "orders",
        "customers",
        "oci control",
        "failed task",
    ):
        page.goto(NAMED[name](furnished).partition("?")[0])
        there[name] = "<img src=x" in page.locator("main").inner_text()
    assert there == dict.fromkeys(there, True)


def test_a_probe_that_is_typed_into_a_sheet_stays_a_text(furnished, admins_tab):
    page = admins_tab
    page.goto("/dashboard/queues/task?state=failed")
    page.get_by_label("Select every row shown").check()
    page.get_by_role("toolbar").get_by_role("button", name="Requeue", exact=True).click()
    page.get_by_label("Reason").fill(PROBE)
    page.get_by_role("dialog").locator("button[type=submit]").click()
    expect(page.locator("#result")).to_contain_text("1 moved")
    seen(page, "en")


def test_a_probe_in_the_address_stays_a_text(furnished, admins_tab, watcher):
    watcher.expects(r"status of 4\d\d")
    page = admins_tab
    names = ("text", "code", "site", "state", "ids", "cursor", "age", "category", "q", "status")
    for path in ("/dashboard/queues/task", CONTROL):
        for query in (dict.fromkeys(names, PROBE), {"text": PROBE}, {"site": PROBE}):
            page.goto(f"{path}?{urlencode(query)}")
            expect(page.locator("h1")).to_have_count(1)
            seen(page, "en")


# Before signing in


def test_the_sign_in_page_is_fit_to_be_used(page):
    page.goto("/sign-in")
    assert seen_in_every_look(page) == []
    page.get_by_role("button", name="Türkçe").click()
    expect(page.locator("html")).to_have_attribute("lang", "tr")
    assert english(page) == []
    assert shaped_well(page) == []


def test_the_judge_sees_what_is_wrong(judge):
    """Else a page could be anything."""
    bad = '<button></button><p class="badge"><a class="muted" href="/">pale</a></p>'
    show(judge, f'<html lang="en"><title>Bad</title><main><h1>Bad</h1>{bad}</main></html>')
    sized(judge, PHONE)
    assert {"button-name", "color-contrast"} <= {one["id"] for one in complaints(judge)}
    assert len(too_small(judge)) == 1
    wide = f"<h1>Bad</h1><p>{'w' * 200}</p><span class='only-read'>of no use</span>"
    show(judge, f"<html lang='en'><title>Bad</title><main>{wide}</main></html>")
    assert too_wide(judge)
    show(judge, "<html lang='tr'><title>İyi</title><main><h1>This is English</h1></main></html>")
    assert english(judge) == ["This is English"]


def test_what_judges_the_pages_is_what_was_published():
    [(digest, name)] = re.findall(
        r"^([0-9a-f]{64})  (\S+)$", (VENDOR / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
