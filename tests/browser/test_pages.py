"""Every page there is, in Turkish: wide and light, on a phone, one of each kind also in the dark.

Neither language nor size nor theme changes the markup, and Turkish words are longer; the other
tests here read English. The long form looks at each page in every combination. The data is full
of probes: what users wrote is shown as text and never runs.
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

from kesin.workloads.pdf.services import load_pdf_templates
from tests.browser.checking import AXE, PHONE, complaints, english, problems, show, sized, too_small, too_wide
from tests.browser.conftest import NAMES
from tests.browser.pages import CONTROL, NAMED, OPENED, PAGES, PARTS, Say
from tests.browser.sample_data import SITE, SampleData, create_sample_data, template_draft
from tests.browser.served import Served
from tests.web.conftest import ROOT, World
from tests.web.dashboard.turkish import TEMPLATES, catalogue, template_name
from tests.web.matrix import all_routes
from tests.workloads.optiplan.orders_ready import held_order

VENDOR = Path(__file__).parent / "vendor"
PROBE = "\"'><img src=x onerror=window.__hacked=1><script>window.__hacked=1</script>{{7*7}}"
GONE = r"status of 404 .*nowhere/at/all"
SHOWS_PROBES = {"conversions", "sites", "keys", "orders", "customers", "oci control", "failed task"}
SHOWS_PROBES |= {"reconciliation"}
ONLY_OPENED = {"filtered", "failed conversion"}  # judged as another page: what opens on it is new
LIGHT = {"overview", "failed task", "orders"}  # one page of each kind in one theme or the other
DARK = {"overview", "conversions", "rules"}
# Other data on a page that is judged anyway: left to the long form.
VARIANTS = {"nothing matches", "empty queue", "orders queue", "conversion", "printed"}
VARIANTS |= {"oci control of a quiet site", "pdf from nothing", "reconciliation of a quiet site"}
VARIANTS |= {"limited queue", "running", "blocked", "empty rack"}
DRAWING = "#job-panel img, #job-panel object, #job-panel svg:not(.icon)"
Language = Literal["en", "tr"]
EN_TOO = pytest.param("en", marks=pytest.mark.long)


@pytest.fixture(scope="module")
def data(served: Served) -> SampleData:
    world = served.world
    world.known("ayse", "admin", all_sites=True)
    world.accounts.set_site(ROOT, SITE, name=f"North{PROBE}")
    sample = create_sample_data(world, PROBE)
    world.service.commands.pause(ROOT, "task", reason=f"a pause{PROBE}")
    template_draft(world)
    world.accounts.note(ROOT, "job.reveal", queue="task", target=f"target{PROBE}"[:120])
    return sample


@pytest.fixture(scope="module")
def carried(served: Served, data: SampleData) -> set[str]:
    """Texts in the language of their author: errors of jobs, the words of templates."""
    jobs = [job for queue in served.world.service.queues.values() for job in queue.jobs().jobs]
    library = load_pdf_templates(served.world.settings)
    templates = [library.get(name) for name in library.names]
    words = re.findall(
        r'"(?:title|description)": "([^"]+)"',
        json.dumps([template.schema for template in templates], ensure_ascii=False),
    )
    return {job.error_message[:20] for job in jobs if job.error_message} | set(words)


def speaks(page: Page, judge: Page, language: Language) -> Say:
    """Set the language of the pages."""
    address = "/".join(judge.url.split("/")[:3])  # the rest would be the cookie's path
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
    """The HTML of a page with everything unfolded, after a check of title, heading and language.

    A probe that became markup would request an image, and the policy would report a script.
    """
    shown = page.evaluate(_SEEN)
    assert re.search(r"\S+ · Kesin$", shown["title"])
    assert len(shown["heading"]) == shown["contents"] == 1
    assert shown["heading"][0]
    assert "49" not in shown["heading"][0] + shown["title"]
    assert shown["language"] == language
    assert shown["here"] < 2
    assert not shown["hacked"]
    return shown["html"]


def close(page: Page) -> None:
    page.keyboard.press("Escape")
    page.locator("details.menu").evaluate_all("all => all.forEach((one) => { one.open = false; })")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_every_route_is_in_the_list_of_pages_or_of_parts(world: World):
    routes = {path for method, path in all_routes(world.app) if method == "GET"}
    assert {path for path in routes if path.startswith("/dashboard")} == PAGES.keys() | PARTS


def test_every_dialog_is_opened():
    dialogs = {template_name(file) for file in TEMPLATES if "<dialog" in file.read_text("utf-8")}
    assert dialogs == {one.template for one in OPENED if one.template}


def test_what_renews_itself_leaves_its_buttons_alone():
    """htmx hands ``hx-sync`` down: what is pressed during a renewal would be dropped with it."""
    texts = [file.read_text("utf-8") for file in TEMPLATES]
    tags = [tag for text in texts for tag in re.findall(r"<(?:div|nav|section) [^>]+>", text)]
    renewed = [tag for tag in tags if 'hx-sync="this:drop"' in tag]
    assert len(renewed) > 5
    assert [tag for tag in renewed if 'hx-disinherit="hx-sync"' not in tag] == []


@pytest.mark.parametrize("language", ["tr", EN_TOO])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in VARIANTS)) for name in NAMED])
def test_a_page_is_accessible_and_fits(name, language, data, carried, admins_tab, *, judge, watcher, request):
    watcher.expects(GONE)
    every = request.config.getoption("--long")
    page = admins_tab
    say = speaks(page, judge, language)
    page.goto(NAMED[name](data))
    how = {"light": name in LIGHT, "dark": name in DARK, "framed": name == "overview" or every}
    if every or name not in ONLY_OPENED:
        _check(page, judge, language, carried, "", every=every, **how)
    if name in SHOWS_PROBES:
        assert "<img src=x" in page.locator("main").inner_text()
    if name == "order":
        expect(page.locator(DRAWING).first).to_be_visible()
    for part in OPENED:
        if part.page == name:
            part.open(page, say)
            expect(page.locator(part.within)).to_be_visible()
            _check(page, judge, language, carried, part.within, every=every)
            close(page)


def _check(page: Page, judge: Page, language: Language, carried: set[str], within: str = "", **how: bool) -> None:
    show(judge, seen(page, language))
    assert problems(judge, within, **how) == []
    assert language == "en" or english(judge, carried) == []


def _built(html: str) -> list[tuple[str, ...]]:
    """How the content of a page is built, whatever its texts say."""
    content = html.partition("<main")[2]
    return re.findall(r"<(\w+)(?:[^>]*?\b(class|type|role)=\"([^\"]*)\")?", content)


def test_pages_of_other_roles_are_accessible_and_fit(data, carried, world, judge, request):
    """Only pages with something that the admin's pages have not; the long form: built otherwise."""
    every = request.config.getoption("--long")
    readers: dict[str, Language] = {"viewer": "tr", "operator": "en"}
    cookies = {role: world.cookie(world.known(NAMES[role], role, all_sites=True)) for role in readers}
    for role, language in readers.items():
        cookies[role]["cookie"] += f"; kesin_language={language}"
    admin = world.cookie("ayse")
    judged: list[list[tuple[str, ...]]] = []
    for name, where in NAMED.items():
        if name in VARIANTS and not every:
            continue
        path = where(data)
        admins = _built(world.client.get(path, headers=admin).text)
        for role, language in readers.items():
            html = world.client.get(path, headers=cookies[role]).text
            built = _built(html)
            if built in judged or (built == admins if every else set(built) <= set(admins)):
                continue
            judged.append(built)
            show(judge, html)
            assert problems(judge, every=every) == [], (role, path)
            assert language == "en" or english(judge, carried) == [], path
    assert len(judged) > (3 if every else 1)


# What an action did


@pytest.mark.parametrize("language", ["tr", EN_TOO])
def test_a_report_of_an_action_is_accessible(language, data, carried, world, admins_tab, *, judge):
    held = held_order(world.service)
    page = admins_tab
    say = speaks(page, judge, language)
    page.goto(f"{CONTROL}?status=FAILED")
    page.locator("input[data-pick]").first.check()
    page.get_by_role("button", name=say("Retry"), exact=True).click()
    _check_report(page, judge, language, carried)
    page.goto("/dashboard/optiplan")
    page.locator(f"#held-{held}").get_by_role("button", name=say("Approve")).click()
    _check_report(page, judge, language, carried)
    assert world.state(held) == "NEW"


def _check_report(page: Page, judge: Page, language: Language, carried: set[str]) -> None:
    """What is around it was judged before it was there."""
    dialog = page.get_by_role("dialog")
    dialog.locator("button.first").click()
    expect(page.locator("#result .alert")).to_be_visible()
    expect(dialog).to_have_count(0)
    _check(page, judge, language, carried, "#result")


# Probes


def test_a_probe_typed_into_a_dialog_stays_a_text(data, admins_tab):
    page = admins_tab
    page.goto("/dashboard/queues/task?state=failed")
    page.get_by_label("Select every row shown").check()
    page.get_by_role("toolbar").get_by_role("button", name="Retry", exact=True).click()
    page.get_by_label("Reason").fill(PROBE)
    page.get_by_role("dialog").locator("button[type=submit]").click()
    expect(page.locator("#result")).to_contain_text("1 moved")
    seen(page, "en")


def test_a_probe_in_the_address_stays_a_text(data, admins_tab, watcher):
    watcher.expects(r"status of 4\d\d")
    page = admins_tab
    names = ("code", "site", "state", "ids", "cursor", "age", "category", "q", "status")
    for query in ({"text": PROBE}, {"site": PROBE}):
        page.goto(f"/dashboard/queues/task?{urlencode(query)}")
        seen(page, "en")
    for query in ({"q": PROBE}, dict.fromkeys(names, PROBE)):
        page.goto(f"{CONTROL}?{urlencode(query)}")
        seen(page, "en")


# Before signing in


def test_the_sign_in_page_is_accessible_and_changes_its_language(page):
    page.goto("/sign-in")
    page.get_by_role("button", name="Türkçe").click()
    expect(page.locator("html")).to_have_attribute("lang", "tr")
    page.evaluate(AXE)  # its style is its own
    assert [*problems(page, light=True, dark=True), *english(page)] == []
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_the_checks_notice_what_is_wrong(judge):
    """Else a page could be anything."""
    bad = '<button></button><p class="badge"><a class="muted" href="/">pale</a></p>'
    show(judge, f'<html lang="en"><title>Bad</title><main><h1>Bad</h1>{bad}</main></html>')
    sized(judge, PHONE)
    found = complaints(judge, style=None)
    assert {"button-name", "color-contrast"} <= {one["id"] for one in found}
    assert complaints(judge, style=None, framed=False) == found
    assert len(too_small(judge)) == 1
    wide = f"<h1>Bad</h1><p>{'w' * 200}</p><span class='only-read'>of no use</span>"
    show(judge, f"<html lang='en'><title>Bad</title><main>{wide}</main></html>")
    assert too_wide(judge)
    show(judge, "<html lang='tr'><title>İyi</title><main><h1>This is English</h1></main></html>")
    assert english(judge) == ["This is English"]


def test_what_judges_the_pages_is_what_was_published():
    [(digest, name)] = re.findall(r"^([0-9a-f]{64})  (\S+)$", (VENDOR / "README.md").read_text("utf-8"), re.MULTILINE)
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
