"""Signing in and out, and an open page whose session or service ends."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from kesin.engine.access.accounts import IDLE_S
from tests.web.conftest import PASSWORD

ENDED = "status of 401 .*/events"  # a watch that begins just then is refused
HERE = "/dashboard/queues/task?state=failed"


def fill_in(page: Page, name: str, password: str = PASSWORD) -> None:
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_signing_in_leads_to_the_page_at_first_and_after_the_session_expired(page, world, watcher):
    """Even after a wrong password."""
    watcher.expects(r"status of 401")
    watcher.expects(ENDED)
    can = world.known("sleepy", "operator", all_sites=True)
    page.goto(HERE)
    expect(page).to_have_url(re.compile(r"/sign-in\?next="))
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    fill_in(page, can, "not the password")
    expect(page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
    expect(page.get_by_label("Password")).to_have_value("")
    fill_in(page, can)
    expect(page).to_have_url(re.compile(re.escape(HERE) + "$"))
    expect(page.locator("header")).to_contain_text(can)
    world.clock.advance(IDLE_S + 1)
    world.job()
    expect(page.get_by_role("status")).to_have_text("Your session has ended. Sign in again to continue.")
    fill_in(page, can)
    expect(page).to_have_url(re.compile(re.escape(HERE)))


def test_signing_out_ends_the_session_and_going_back_shows_nothing(signed_in):
    page = signed_in("operator")
    page.goto("/dashboard")
    page.locator("header .menu.mine summary").click()
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page).to_have_url(re.compile("/sign-in$"))
    expect(page.get_by_role("status")).to_have_count(0)
    page.go_back()
    expect(page).to_have_url(re.compile("/sign-in"))
    expect(page.get_by_label("Password")).to_be_visible()


def test_signing_out_everywhere_is_noticed_by_another_browser_though_nothing_moves(signed_in, watcher):
    watcher.expects(ENDED)
    here, there = signed_in("operator"), signed_in("operator")
    here.goto("/dashboard")
    with there.expect_response(re.compile("/api/queues/task/events")):
        there.goto("/dashboard/queues/task")
    here.locator("header .menu.mine summary").click()
    here.get_by_role("button", name="Sign out everywhere").click()
    expect(here.get_by_role("button", name="Sign in")).to_be_visible()
    expect(there.get_by_role("status")).to_contain_text("Your session has ended")
    expect(there.locator("input[name=next]")).to_have_value("/dashboard/queues/task")


def test_an_unreachable_service_is_reported_and_the_page_recovers(signed_in, served, watcher):
    """What was chosen stays chosen; what moved meanwhile is shown without a reload."""
    watcher.expects(r"ERR_(CONNECTION_REFUSED|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)")
    watcher.expects(r"ERR_(CONNECTION_RESET|NETWORK_CHANGED|SOCKET_NOT_CONNECTED)")
    watcher.expects(r"status of 503|htmx:sendError|console: (Event|htmx)")
    chosen = served.world.failed(key="chosen")
    page = signed_in("operator")
    page.goto("/dashboard/queues/task")
    page.locator(f"#row-{chosen} input").check()
    expect(page.locator("[data-fresh]")).not_to_have_class(re.compile("stale"))
    served.stop()
    expect(page.locator("#offline")).to_contain_text("The service has not responded since")
    expect(page.locator("[data-fresh]")).to_have_class(re.compile("stale"))
    world = served.start_again()
    late = world.failed(key="late")
    page.get_by_role("button", name="1 new", exact=True).click(timeout=20_000)
    expect(page.locator(f"#row-{late}")).to_be_visible()
    expect(page.locator("[data-fresh]")).not_to_have_class(re.compile("stale"))
    expect(page.locator(f"#row-{chosen} input")).to_be_checked()
    expect(page.locator("#offline")).to_be_hidden()
