"""Lists hold still, sort and obey keys; a dialog jumps; a banner says when nothing answers."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.browser.checking import AT_DESK, ON_PHONE, PHONE, complaints, outage, show, sized, too_wide_at_any_size
from tests.browser.test_flows import TASKS, failed, row
from tests.web.conftest import World

RENEW = "() => htmx.trigger('#view', 'renew')"


def shown(page: Page) -> list[str]:
    ids: list[str] = page.locator("tr[id^=row-]").evaluate_all("rows => rows.map((one) => one.id.slice(4))")
    return ids


def focused_row(page: Page) -> str:
    """The row that has the focus; empty if none has it."""
    found: str = page.evaluate("() => document.activeElement.closest('tr')?.id.replace('row-', '') || ''")
    return found


def place(at: Locator) -> float:
    box = at.bounding_box()
    assert box
    return box["y"]


# Rows hold still


@ON_PHONE
def test_rows_hold_still_while_new_ones_gather_behind_a_button(signed_in, world, size):
    jobs = failed(world, 3, f"HELD{size['width']}")
    page = signed_in("operator", size=size)
    page.goto(f"{TASKS}?state=failed&code=HELD{size['width']}")
    expect(row(page, jobs[0])).to_be_visible()
    row(page, jobs[1]).locator("input").check()
    before, at = shown(page), place(row(page, jobs[1]))
    failed(world, 2, f"HELD{size['width']}")
    fresh = page.locator("#list-news").get_by_role("button", name="2 new", exact=True)
    expect(fresh).to_be_visible()
    world.task.act("requeue", actor="user:ece", ids=[jobs[0]])
    expect(row(page, jobs[0])).to_contain_text("ready")
    expect(row(page, jobs[0])).to_have_class("stale")
    expect(page.locator("#list-count")).to_have_text("2 of 4 jobs · 1 no longer match")
    assert shown(page) == before
    assert place(row(page, jobs[1])) == at
    expect(row(page, jobs[1]).locator("input")).to_be_checked()
    assert page.locator("#list-news").get_attribute("role") == "status"
    fresh.click()
    expect(row(page, jobs[0])).to_have_count(0)
    expect(page.locator("tr[id^=row-]")).to_have_count(4)
    expect(fresh).to_have_count(0)
    expect(row(page, jobs[1]).locator("input")).to_be_checked()
    expect(page.locator("#list-count")).to_have_text("4 of 4 jobs")


@AT_DESK
def test_the_count_and_older_rows_survive_a_renewal(signed_in, world, size):
    failed(world, 60, f"MANY{size['width']}")
    page = signed_in("viewer", size=size)
    page.goto(f"{TASKS}?code=MANY{size['width']}")
    for n in (50, 60):
        expect(page.locator("tr[id^=row-]")).to_have_count(n)
        before = shown(page)
        with page.expect_response(re.compile("/renewal")):
            page.evaluate(RENEW)
        expect(page.locator("#list-count")).to_have_text(f"{n} of 60 jobs")
        assert shown(page) == before
        if n == 50:
            page.get_by_role("link", name="Show 50 more").click()
    expect(page.get_by_role("link", name="Show 50 more")).to_have_count(0)
    assert not too_wide_at_any_size(page)


# Sorting


def test_a_head_turns_the_order_round_and_the_address_keeps_it(signed_in, world):
    """A phone has no heads: it has a link of its own."""
    jobs = failed(world, 3, "ORDER")
    page = signed_in("viewer")
    page.goto(f"{TASKS}?code=ORDER")
    assert shown(page) == jobs[::-1]
    head = page.locator(".sort:visible").filter(has_text="Created")
    head.click()
    expect(page).to_have_url(re.compile(r"order=oldest"))
    expect(page.locator("th:has(a.sort)")).to_have_attribute("aria-sort", "ascending")
    assert shown(page) == jobs
    page.reload()
    assert shown(page) == jobs
    sized(page, PHONE)
    page.locator(".sort:visible").filter(has_text="Created").click()
    expect(page.locator("th:has(a.sort)")).to_have_attribute("aria-sort", "descending")
    assert shown(page) == jobs[::-1]
    assert "order=" not in page.url


@AT_DESK
def test_small_tables_are_sorted_in_the_browser(signed_in, world, size):
    for name in ("zehra", "ali9", "ali10"):
        world.known(name, "viewer")
    page = signed_in("admin", size=size)
    page.goto("/dashboard/admin/people")
    names = page.locator("tbody td:first-child")
    head = page.get_by_role("columnheader", name="Name")

    def sorted_by() -> list[str]:
        texts = names.all_inner_texts()
        return [text for text in texts if text in {"zehra", "ali9", "ali10"}]

    expect(head).to_have_attribute("aria-sort", "none")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    assert sorted_by() == ["ali9", "ali10", "zehra"]
    head.get_by_role("button").press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    assert sorted_by() == ["zehra", "ali10", "ali9"]
    assert not too_wide_at_any_size(page)


# Keys


@AT_DESK
def test_a_list_is_used_by_keys_alone_which_a_dialog_lists(signed_in, world, size):
    """Whether the dialog is accessible and fits is checked in test_pages.py, as for every other."""
    code = f"KEYS{size['width']}"
    jobs = failed(world, 4, code)[::-1]
    page = signed_in("operator", size=size)
    page.goto(f"{TASKS}?code={code}")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    row(page, jobs[0]).locator("input").focus()
    page.keyboard.press("Tab")
    expect(row(page, jobs[0]).get_by_role("link").first).to_be_focused()
    page.locator("h1").click()
    page.keyboard.press("ArrowDown")
    assert focused_row(page) == jobs[0]
    page.keyboard.press("j")
    assert focused_row(page) == jobs[1]
    page.keyboard.press("Space")
    expect(row(page, jobs[1]).locator("input")).to_be_checked()
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    assert focused_row(page) == jobs[3]
    expect(page.locator("[data-picked]")).to_have_text("3")
    with page.expect_response(re.compile("/renewal")):
        page.evaluate(RENEW)
    assert focused_row(page) == jobs[3], "a renewal leaves the focus where it is"
    page.keyboard.press("x")
    expect(page.locator("[data-bar]")).to_be_hidden()
    page.keyboard.press("k")
    page.keyboard.press("ArrowUp")
    assert focused_row(page) == jobs[1]
    page.keyboard.press("/")
    expect(page.locator("#f-text")).to_be_focused()
    page.keyboard.type("jk ?x")
    expect(page.locator("#f-text")).to_have_value("jk ?x")
    page.goto(f"{TASKS}?code={code}")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/dashboard/jobs/{jobs[0]}"))
    page.wait_for_load_state()
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page).to_have_url(re.compile("/dashboard$"))
    page.wait_for_load_state()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    for words in ("Next row", "Extend the selection", "Go to the overview"):
        expect(dialog.get_by_text(words)).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


@AT_DESK
def test_the_jump_dialog_leads_to_a_site_and_to_a_job(signed_in, world, size):
    """Whether the dialog is accessible and fits is checked in test_pages.py, as for every other."""
    job = world.job(key=f"jump-{size['width']}")
    page = signed_in("viewer", size=size)
    page.goto(TASKS)
    page.get_by_role("button", name="Jump to…").click()
    field = page.get_by_role("combobox", name="Find a page, queue, site or job")
    expect(field).to_be_focused()
    options = page.locator("#jump-results [role=option]")
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    expect(field).to_have_attribute("aria-activedescendant", "jump-2")
    page.keyboard.press("Escape")
    expect(field).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(field).to_be_focused()
    field.fill("nothing has this name")
    expect(page.get_by_text("Nothing found.")).to_be_visible()
    field.fill("south")
    expect(options).to_have_count(1)
    expect(options).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page).to_have_url("/dashboard/site/south/oci-control")
    page.wait_for_load_state()
    page.keyboard.press("Meta+k")
    field.fill(f"jump-{size['width']}")
    expect(options.first).to_contain_text(f"jump-{size['width']}")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/dashboard/jobs/{job}"))


# Offline


@AT_DESK
def test_a_banner_says_that_nothing_answers_and_actions_wait(
    signed_in, world: World, watcher, judge, size: ViewportSize
):
    [job] = failed(world, 1, f"LOST{size['width']}")
    page = signed_in("operator", size=size)
    page.goto(f"{TASKS}?code=LOST{size['width']}")
    row(page, job).locator("input").check()
    retry = page.locator("[data-bar]").get_by_role("button", name="Retry", exact=True)
    expect(retry).to_be_enabled()
    at = place(row(page, job))
    outage(page, watcher)
    banner = page.locator("#offline")
    expect(banner).to_be_visible()
    expect(banner).to_contain_text(re.compile(r"The service has not responded since \d+:\d\d:\d\d"))
    expect(banner).to_contain_text(re.compile(r"Next attempt in \d+ s\.|Trying…"))
    expect(retry).to_have_attribute("aria-disabled", "true")
    expect(retry).to_have_attribute("title", re.compile("wait until it is back"))
    retry.click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert place(row(page, job)) == at
    show(judge, page.content())
    assert complaints(judge, within="#offline") == []
    assert not too_wide_at_any_size(page)
    page.get_by_role("button", name="Try now").click()
    expect(banner).to_be_visible()
    page.context.set_offline(False)
    expect(banner).to_be_hidden()
    expect(retry).not_to_have_attribute("aria-disabled", "true")
    retry.click()
    expect(page.get_by_role("dialog")).to_be_visible()


def test_the_tries_come_later_and_later(signed_in, world: World, watcher):
    page = signed_in("viewer", once=True)
    page.clock.install()
    page.goto(TASKS)
    expect(page.locator("#list-count, .empty").first).to_be_visible()
    outage(page, watcher)
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 60)  # tries take no time now
    spans = []
    following = page.locator("#offline [data-next]")
    for _ in range(3):
        expect(following).to_have_text(re.compile("Next attempt in"))
        found = re.search(r"\d+", following.inner_text())
        assert found
        spans.append(int(found[0]))
        with page.expect_event("requestfailed", lambda request: request.url.endswith("/health/live")):
            page.clock.fast_forward(spans[-1] * 1000)
    page.context.set_offline(False)
    assert spans[0] < spans[1] < spans[2]
