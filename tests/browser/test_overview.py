"""The overview and what it leads to; whether it is accessible is checked in test_pages.py."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import ViewportSize, expect

from kesin.engine.queue import Queue
from kesin.lifecycle.task import task_lifecycle
from tests.browser.checking import AT_DESK, ON_PHONE, PHONE, WIDE, sized, too_wide_at_any_size
from tests.browser.conftest import NewPage
from tests.browser.sample_data import conversions, tasks
from tests.browser.served import Served
from tests.web.conftest import World
from tests.workloads.optiplan.orders_ready import held_order


@pytest.fixture(scope="module")
def busy(served: Served) -> World:
    """Two held orders, conversions, tasks, one of which raised, and a queue of one's own."""
    world = served.world
    letters = Queue("letters", task_lifecycle("letters"), world.store, clock=world.clock)
    world.service.queues["letters"] = letters
    letters.enqueue({}, tenant="north")
    for number in ("W-31", "W-32"):
        held_order(world.service, order_id=number)
    conversions(world)
    world.service._note_history()
    tasks(world)
    world.clock.advance(600)
    world.service._note_history()
    return world


def test_queues_of_ones_own_come_first_and_what_is_idle_folds_into_one_line(busy: World, signed_in: NewPage) -> None:
    page = signed_in("admin")
    page.goto("/dashboard")
    cards, idle = page.locator("article.card"), page.locator("p.idle")
    expect(page.locator("#card-task .card-chart")).to_be_visible()
    assert cards.count() == 4
    for size in (WIDE, PHONE):
        sized(page, size)
        heights = cards.evaluate_all("(all) => all.map((one) => one.offsetHeight)")
        assert len(set(heights)) == 1, (size, heights)
        expect(idle).to_have_count(1)
        expect(idle).to_have_text("Adjustments, PDFs, PDF batches, PDF webhooks: no jobs")
    for name in ("pdf", "pdf_batches", "pdf_webhooks", "oci_adjustments"):
        expect(page.locator(f"#card-{name}")).to_have_count(0)
        expect(idle.locator(f"a[href='/dashboard/queues/{name}']")).to_have_count(1)
    expect(cards.first).to_have_id("card-letters")
    expect(cards.first.get_by_role("heading")).to_have_text("letters yours")
    expect(page.get_by_text("yours", exact=True)).to_have_count(1)
    expect(page.locator("[id^=need-letters]")).to_have_count(0)  # it is well
    assert too_wide_at_any_size(page) == []


@AT_DESK
def test_several_held_orders_lead_to_the_orders(busy: World, signed_in: NewPage, size: ViewportSize) -> None:
    page = signed_in("operator", size=size)
    page.goto("/dashboard")
    line = page.locator("[id^=need-optiplan]")
    expect(line).to_have_count(1)
    expect(line).to_contain_text("2 jobs")
    line.get_by_role("link", name="Open the orders").click()
    expect(page).to_have_url(re.compile(r"/dashboard/optiplan\?state=HOLD$"))
    for number in ("W-31", "W-32"):
        expect(page.locator("article.hold").filter(has_text=number)).to_be_visible()
    expect(page.locator("#list-count")).to_have_text("2 of 2 jobs")


@ON_PHONE
def test_selected_jobs_without_an_action_lead_to_the_page_that_has_it(
    busy: World, signed_in: NewPage, size: ViewportSize
) -> None:
    page = signed_in("operator", size=size)
    page.goto("/dashboard/queues/optiplan?state=HOLD")
    page.locator("input[data-pick]").first.check()
    bar = page.get_by_role("toolbar", name="With the selected jobs")
    expect(bar).to_contain_text("No single action applies to all these jobs. Open them one by one.")
    assert too_wide_at_any_size(page) == []
    bar.get_by_role("link", name="Cutting orders").click()
    expect(page).to_have_url(re.compile(r"/dashboard/optiplan$"))
    page.goto("/dashboard/queues/oci?state=FAILED")
    page.locator("input[data-pick]").first.check()
    expect(bar.get_by_role("button", name="Retry")).to_be_visible()
    expect(bar.get_by_text("No single action applies to all these jobs.")).to_be_hidden()


def test_rows_that_failed_fit_a_phone_in_turkish_too(busy: World, signed_in: NewPage) -> None:
    page = signed_in("admin", size=PHONE, language="tr")
    for path in ("queues/oci?state=FAILED", "site/north/oci-control?status=FAILED"):
        page.goto(f"/dashboard/{path}")
        expect(page.locator("tr .chip").first).to_have_text("FAILED (başarısız)")
        width, room = page.locator(".table-wrap").evaluate("(one) => [one.scrollWidth, one.clientWidth]")
        assert width <= room, path
