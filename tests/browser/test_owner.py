"""The workshop owner gets from the overview to the printed plan in at most five clicks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Locator, Page, expect

from kesin.engine.worker import Worker
from kesin.workloads.optiplan.pipeline.runner import Runner
from kesin.workloads.optiplan.service import OrderService
from tests.browser.checking import ON_PHONE, english, too_wide_at_any_size
from tests.web.conftest import World
from tests.workloads.optiplan.orders_ready import ROOT, held_order, order_service, write_xml

MOST_CLICKS = 5
WAKE_UP_S = 31.0
# A page that nothing moves on looks again every ten seconds; so soon it would take a test as long.
LOOK_AGAIN = "() => document.dispatchEvent(new Event('kesin:found'))"
_numbers = itertools.count(1)


@dataclass
class Clicks:
    """Counts what a person presses."""

    n: int = 0
    names: list[str] = field(default_factory=list)

    def on(self, place: Locator) -> None:
        self.n += 1
        self.names.append(place.inner_text())
        place.click()


@pytest.fixture
def shop(world: World) -> OrderService:
    """A workshop with OptiPlanning."""
    return order_service(world.service)


def work(world: World, orders: OrderService, job: str, state: str) -> None:
    """Let the runner take the order to this state."""
    worker = Worker(orders.queue, Runner(orders.workshop, orders.queue).__call__, batch=1)
    for _ in range(8):
        worker.drain()
        if world.state(job) == state:
            return
        world.clock.advance(WAKE_UP_S)
    pytest.fail(f"the order is {world.state(job)}")


def new_order(world: World, mode: str) -> tuple[str, str]:
    phone = f"0534 500 {next(_numbers):04d}"
    name = {"customer_phone": phone, "customer_snapshot_name": "Gülşen Demir"}
    return held_order(world.service, opti_mode=mode, **name), phone


def to_the_order(page: Page, clicks: Clicks, job: str) -> None:
    page.goto("/dashboard")
    line = page.locator("[id^=need-optiplan]").filter(has_text="No customer has this order's")
    expect(line).to_contain_text("R-")  # which order it is
    clicks.on(line.get_by_role("link", name="Open the order"))
    expect(page).to_have_url(f"/dashboard/jobs/{job}")


def print_plan(page: Page, clicks: Clicks) -> bytes:
    plan = page.locator("#job-head").get_by_role("link", name="Print the plan")
    expect(plan).to_be_visible()
    assert "first" in (plan.get_attribute("class") or "").split()
    with page.expect_download() as waiting:
        clicks.on(plan)
    return waiting.value.path().read_bytes()


@ON_PHONE
def test_in_mode_c_the_owner_optimises_and_approves_and_needs_five_clicks_at_most(signed_in, world, shop, size):
    job, phone = new_order(world, "C")
    page, clicks = signed_in("operator", size=size), Clicks()
    to_the_order(page, clicks, job)
    assert too_wide_at_any_size(page) == []
    expect(page.locator("#k-name")).to_have_value("Gülşen Demir")
    expect(page.locator("#k-phone")).to_have_value(phone)
    clicks.on(page.get_by_role("button", name="Add customer and approve"))
    expect(page.locator("#result")).to_contain_text("order approved, now NEW.")
    expect(page.locator("#k-name")).to_have_count(0)
    work(world, shop, job, "HOLD")
    expect(page.locator("#job-head")).to_contain_text("HOLD")
    expect(page.locator("main")).to_contain_text("an operator must start OptiPlanning")
    with page.expect_download():
        clicks.on(page.get_by_role("link", name="Import files"))
    write_xml(shop, job)  # at OptiPlanning
    expect(page.locator("#view")).to_have_attribute("data-most", "10")
    page.evaluate(LOOK_AGAIN)
    expect(page.locator("#job-next")).to_contain_text("ready to approve")
    expect(page.locator("#result > *")).to_have_count(0)  # the first approval: the order moved on
    clicks.on(page.locator("#job-head").get_by_role("button", name="Approve"))
    expect(page.locator("#result")).to_contain_text("Approved, now NEW.")
    work(world, shop, job, "XML_READY")
    assert print_plan(page, clicks).startswith(b"%PDF")
    assert clicks.n <= MOST_CLICKS, clicks.names
    shop.cancel(ROOT, job)


@pytest.mark.long  # in short: mode C
def test_a_result_goes_even_if_the_page_never_showed_the_state_it_led_to(signed_in, world, shop):
    job, _ = new_order(world, "C")
    page = signed_in("operator")
    page.goto(f"/dashboard/jobs/{job}")
    page.route(f"**/dashboard/jobs/{job}*", lambda route: route.fulfill(status=204))  # no renewal
    page.get_by_role("button", name="Add customer and approve").click()
    expect(page.locator("#result")).to_contain_text("order approved, now NEW.")
    work(world, shop, job, "HOLD")
    page.unroute_all()
    page.evaluate(LOOK_AGAIN)
    expect(page.locator("main")).to_contain_text("an operator must start OptiPlanning")
    expect(page.locator("#result > *")).to_have_count(0)
    shop.cancel(ROOT, job)


def test_without_its_xml_the_approval_still_asks(signed_in, world, shop):
    job, phone = new_order(world, "C")
    shop.add_customer(ROOT, "Gülşen Demir", phone, approve=job)
    work(world, shop, job, "HOLD")
    page = signed_in("operator")
    page.goto(f"/dashboard/jobs/{job}")
    page.locator("#job-head").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("dialog")).to_contain_text("Approve the order without its XML")
    assert world.state(job) == "HOLD"
    shop.cancel(ROOT, job)


@ON_PHONE
def test_the_customer_alone_is_added_and_the_card_says_so_at_once(signed_in, world, shop, size):
    """The card is there in Turkish too."""
    job, _ = new_order(world, "A")
    page = signed_in("operator", language="tr", size=size)
    page.goto(f"/dashboard/jobs/{job}")
    expect(page.get_by_role("button", name="Müşteriyi ekle ve onayla")).to_be_visible()
    assert english(page, carried=["Gülşen"]) == []
    page.get_by_role("button", name="EN", exact=True).click()
    card = page.locator("#job-panel section.hold")
    expect(card).to_contain_text("No customer has this order's phone number")
    page.get_by_role("button", name="Add customer only").click()
    expect(page.locator("#result")).to_contain_text("The order can be approved now.")
    expect(card).to_contain_text("is known now")
    expect(card).not_to_contain_text("No customer has")
    expect(page.locator("#k-name")).to_have_count(0)
    shop.cancel(ROOT, job)
