"""Times in the browser's zone, bars that stay, charts that answer, and lists on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from kesin.engine.results import Done
from kesin.engine.worker import Worker
from tests.browser.checking import PHONE, WIDE, sized, too_wide
from tests.browser.conftest import NAMES
from tests.browser.contexts import PATIENCE_MS
from tests.browser.served import Served
from tests.browser.watching import Watcher
from tests.web.conftest import PASSWORD, ROOT, World

QUEUE = "/dashboard/queues/task"
PLACED = """(selector) => {
  const box = document.querySelector(selector).getBoundingClientRect();
  return [Math.round(box.top), Math.round(box.bottom)];
}"""
# Whatever can be reached with the keyboard, once it has the focus, and lies under a bar.
COVERED = """() => {
  const bars = [...document.querySelectorAll(".top, .side")]
    .map((one) => one.getBoundingClientRect());
  return [...document.querySelectorAll("main a, main button, main input")].filter((one) => {
    if (!one.checkVisibility()) return false;
    one.focus();
    const box = one.getBoundingClientRect();
    return bars.some((bar) => box.top < bar.bottom - 1 && box.bottom > bar.top + 1
      && box.left < bar.right - 1 && box.right > bar.left + 1);
  }).map((one) => one.outerHTML.slice(0, 120));
}"""


@pytest.fixture(scope="module")
def busy(served: Served) -> World:
    """Many jobs, done within forty minutes, and a site in Tokyo."""
    world = served.world
    world.accounts.set_site(ROOT, "north", timezone="Asia/Tokyo")
    for n in (9, 14, 3, 22):
        world.service._note_history()
        for _ in range(n):
            world.job()
        world.clock.advance(0.34)
        Worker(world.task, lambda _job: Done()).drain()
        world.clock.advance(600)
    return world


@pytest.fixture
def in_new_york(browser: Browser, served: Served, watcher: Watcher) -> Iterator[Page]:
    """A visitor's tab on a computer in New York."""
    context = browser.new_context(
        base_url=served.address, locale="en-GB", timezone_id="America/New_York", viewport=WIDE
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    watcher.watch(page)
    yield page
    context.close()


def axis(page: Page) -> list[str]:
    return page.locator("#chart-throughput .plot-area text").all_text_contents()


# Zones


def test_a_page_shows_the_time_of_the_browser_and_switches_to_utc(busy, in_new_york, served):
    page, who = in_new_york, busy.known(NAMES["admin"], "admin")
    cookie = {"name": "kesin_session", "value": busy.token(who), "url": served.address}
    page.context.add_cookies([cookie])
    page.goto("/dashboard/audit")  # the server does not know the zone: it is put right in its place
    expect(page.locator("time").last).to_have_text("14 Nov 2023 17:13:20")
    expect(page.locator("#zone summary")).to_contain_text("New York")
    page.context.clear_cookies()
    page.goto("/sign-in")  # where the zone is noted: the first page has it already
    page.get_by_label("Name").fill(who)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.goto(QUEUE)
    expect(page.locator("html")).to_have_attribute("data-zone", "America/New_York")
    zone = page.locator("#zone summary")
    expect(zone).to_contain_text("New York")
    assert axis(page) == ["17:15", "17:30", "17:45"]
    page.goto("/dashboard/audit")
    time = page.locator("time").last
    expect(time).to_have_text("14 Nov 2023 17:13:20")
    expect(time).to_have_attribute("title", "14 Nov 2023 22:13:20 UTC")
    zone.click()
    page.get_by_role("button", name="UTC", exact=True).click()
    expect(zone).to_contain_text("UTC")
    expect(page.locator("time").last).to_have_text("14 Nov 2023 22:13:20")
    page.goto(QUEUE)
    assert axis(page) == ["22:15", "22:30", "22:45"]


@pytest.mark.long
def test_on_a_phone_too_times_switch_between_zones(busy, in_new_york, served):
    page = in_new_york
    sized(page, PHONE)
    token = busy.token(busy.known(NAMES["admin"], "admin"))
    page.context.add_cookies([{"name": "kesin_session", "value": token, "url": served.address}])
    page.goto(f"{QUEUE}?site=north")
    summary, sheet = page.locator("#zone summary"), page.locator("#zone .menu-sheet")
    for name, city in (("The site's time", "Tokyo"), ("UTC", "UTC"), ("My time", "New York")):
        expect(summary).to_be_visible()
        assert summary.evaluate("(one) => one.getBoundingClientRect().height") >= 43.5
        summary.click()
        box = sheet.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
        sheet.get_by_role("button", name=name).click()
        expect(summary).to_contain_text(city)
        assert too_wide(page) == []
    expect(page).to_have_url(re.compile("site=north"))


def test_a_page_about_a_site_switches_to_its_time_as_the_site_is_chosen(busy, signed_in):
    page = signed_in("admin")
    page.goto(QUEUE)
    zone = page.locator("#zone summary")
    site = page.get_by_role("button", name=re.compile("The site's time"))
    zone.click()
    expect(site).to_have_count(0)
    zone.click()
    busy.job("south")
    page.goto(QUEUE)
    page.get_by_label("Site", exact=True).select_option("north")
    expect(page).to_have_url(re.compile("site=north"))
    zone.click()
    site.click()
    expect(zone).to_contain_text("Tokyo")
    expect(page).to_have_url(re.compile("site=north"))


# Bars that stay


def test_bars_stay_while_the_page_scrolls_and_charts_answer_at_a_desk_and_on_a_phone(busy, signed_in):
    """Bars cover nothing in focus and hold every entry; the texts of charts are apart."""
    page = signed_in("admin")
    # A renewal between the pointer's move and the look would bring another chart below it.
    page.route("**/queues/task/renewal*", lambda route: route.fulfill(status=204))
    page.goto(QUEUE)
    for size in (WIDE, PHONE):
        sized(page, size)
        check_charts(page)
        page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
        check_bars(page, size)
    a_phone_has_four_entries_with_icons_and_more(page)
    a_side_bar_longer_than_the_window_scrolls_by_itself(page)


def check_bars(page: Page, size: ViewportSize) -> None:
    before = {bar: page.evaluate(PLACED, bar) for bar in (".top", "#nav")}
    page.mouse.move(size["width"] / 2, size["height"] / 2)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert page.evaluate("scrollY") > 300
    assert {bar: page.evaluate(PLACED, bar) for bar in before} == before
    assert before[".top"][0] == 0
    assert before["#nav"][1] == size["height"]
    last = page.locator("tr[id^=row-]").last
    expect(last).to_be_in_viewport(ratio=1)
    assert page.evaluate(PLACED, "tr[id^=row-]:last-child")[1] <= (
        before["#nav"][0] if size == PHONE else size["height"]
    )
    assert page.evaluate(COVERED) == []


def a_side_bar_longer_than_the_window_scrolls_by_itself(page: Page) -> None:
    sized(page, {"width": 1440, "height": 300})
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")
    admin = page.locator("#nav").get_by_role("link", name="Admin")
    expect(admin).not_to_be_in_viewport()
    admin.scroll_into_view_if_needed()
    expect(admin).to_be_in_viewport()
    assert page.evaluate("scrollY") == 0


def a_phone_has_four_entries_with_icons_and_more(page: Page) -> None:
    bar = page.locator("#nav")
    links = bar.get_by_role("link")
    expect(links).to_have_count(4)
    expect(bar.locator("a:visible .icon, button .icon")).to_have_count(5)
    expect(bar.get_by_role("link", name="Admin")).to_be_hidden()
    boxes = [one.bounding_box() for one in links.all()]
    assert len({round(box["y"]) for box in boxes if box}) == 1
    more = bar.get_by_role("button", name="More")
    more.click()
    expect(more).to_have_attribute("aria-expanded", "true")
    with page.expect_response(re.compile("/dashboard/nav")):
        page.evaluate("htmx.trigger('#nav', 'renew')")
    expect(bar.get_by_role("link", name="Admin")).to_be_visible()
    assert not too_wide(page)
    page.keyboard.press("Escape")
    expect(bar.get_by_role("link", name="Admin")).to_be_hidden()
    expect(more).to_be_focused()


# Lists


def test_on_a_phone_rows_come_before_filters(busy, signed_in):
    page = signed_in("admin", size=PHONE)
    page.goto(f"{QUEUE}?site=north")
    search, button = page.get_by_role("searchbox"), page.locator("[data-fold]")
    expect(search).to_be_hidden()
    expect(button).to_have_text(re.compile(r"Filter\s*1"))
    button.click()
    expect(search).to_be_focused()
    expect(button).to_have_attribute("aria-expanded", "true")
    search.fill("nothing like it")
    expect(page.get_by_text("No job matches")).to_be_visible()
    expect(button).to_have_text(re.compile(r"Filter\s*2"))
    expect(search).to_be_visible()  # the renewed page keeps them open
    assert page.evaluate("document.querySelector('.states').scrollWidth") > PHONE["width"]
    button.click()
    expect(search).to_be_hidden()
    sized(page, WIDE)
    expect(search).to_be_visible()
    expect(button).to_be_hidden()


def test_selected_rows_are_counted_with_separators(busy, signed_in):
    page = signed_in("admin", language="tr")
    page.goto(QUEUE)
    page.locator("#rows").evaluate(  # at once: a renewal removes rows that are not there
        """(rows) => {
          for (let n = 0; n < 1200; n += 1) {
            const row = rows.querySelector("tr[id^=row-]").cloneNode(true);
            row.id = `row-${n}`;
            row.hidden = true; // to draw them all takes a second
            row.querySelector("input").value = String(n);
            rows.append(row);
          }
          document.querySelector("input[data-pick-all]").click();
        }"""
    )
    expect(page.locator("[data-picked]")).to_have_text(re.compile(r"^1\.2\d\d$"))


# Charts


def check_charts(page: Page) -> None:
    chart = page.locator("#chart-throughput")
    value = chart.locator("[data-value]")
    bar = chart.locator(".fill-done").first
    bar.hover()
    expect(value).to_have_text(re.compile(r"^\d\d:\d\d–\d\d:\d\d: \d+ done, 0 failed$"))
    chart.get_by_role("img").focus()
    shown = value.inner_text()
    page.keyboard.press("ArrowRight")
    expect(value).not_to_have_text(shown)
    for selector in (".plot-area text", ".plot-y text"):
        boxes = [one.bounding_box() for one in chart.locator(selector).all()]
        assert len(boxes) >= 3
        places = [box for box in boxes if box]
        for one, other in pairwise(places):
            apart = other["x"] >= one["x"] + one["width"] or other["y"] + other["height"] <= one["y"] + 4
            assert apart, (selector, one, other)
    picture = page.locator("#chart-durations").get_by_role("img")
    expect(picture).to_have_attribute("aria-label", re.compile("median 340 ms"))
