"""What is around every page: how old it is, which site, and where else to go."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.checking import PHONE, too_wide


def test_a_page_shows_its_age_and_switches_to_another_site(signed_in, world):
    world.job("north", key="framed")
    page = signed_in("viewer")
    page.goto("/dashboard/queues/task")
    expect(page.locator("[data-fresh]")).to_have_text(re.compile(r"^live · \d+ s ago$"))
    page.locator("header .switch summary").click()
    page.locator("header .switch a", has_text="north").first.click()
    expect(page).to_have_url(re.compile(r"queues/task\?site=north$"))
    expect(page.locator("h1")).to_have_text(re.compile(r"^task · North|^task · north"))
    page.locator("#f-site").select_option("")
    expect(page.locator("h1")).to_have_text("task")
    expect(page).to_have_title("task · Kesin")
    expect(page.locator("header .switch summary")).to_contain_text("every site")


def test_on_a_phone_the_other_pages_are_one_press_away(signed_in):
    page = signed_in("operator", size=PHONE)
    page.goto("/dashboard")
    workers = page.locator("#nav").get_by_role("link", name="Workers")
    more = page.get_by_role("button", name="More")
    expect(workers).to_be_hidden()
    more.click()
    expect(more).to_have_attribute("aria-expanded", "true")
    page.evaluate("htmx.trigger('#nav', 'renew')")
    page.wait_for_event("response", lambda answer: "/dashboard/nav" in answer.url)
    expect(workers).to_be_visible()
    assert not too_wide(page)
    page.keyboard.press("Escape")
    expect(workers).to_be_hidden()
    expect(more).to_be_focused()
