"""A job's page in a browser, wide and on a phone: actions, the header, what came of it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from kesin.engine.results import Failed
from kesin.engine.worker import Worker
from kesin.lifecycle.errors import Category
from tests.browser.checking import AT_DESK, ON_PHONE, PHONE, WIDE, is_seen_before_the_timeline, sized
from tests.browser.sample_data import conversions
from tests.web.conftest import ROOT, World
from tests.workloads.optiplan.orders_ready import held_order, order_service, planned_order

# The page hears of nothing by itself.
DEAF = """() => {
  const trigger = htmx.trigger;
  htmx.trigger = (place, name, detail) => name === "renew" || trigger(place, name, detail);
}"""


def failed_task(world: World) -> str:
    job_id = world.job(payload={"note": "hello"})
    broken = Failed("BROKEN", "it broke", category=Category.VALIDATION)
    Worker(world.task, lambda _: broken).drain()
    return job_id


def take(page: Page, name: str) -> None:
    """Choose an action of the header, where a phone may have folded it away."""
    button = page.locator("#job-head").get_by_role("button", name=name, exact=True)
    if not button.is_visible():
        page.locator(".more-acts").click()
    button.click()


def header(page: Page) -> tuple[float, float]:
    """Where the sticky header begins, and how high it is."""
    box = page.locator(".job-top").bounding_box()
    assert box is not None
    return box["y"], box["height"]


def stays(page: Page) -> None:
    """Mark the document: a page that is loaded again has lost the mark."""
    page.evaluate("document.documentElement.dataset.mark = 'same'")


def expect_same_document(page: Page) -> None:
    expect(page.locator("html")).to_have_attribute("data-mark", "same")


@ON_PHONE
def test_a_task_is_requeued_and_its_page_shows_the_new_state_at_once(size, signed_in, world):
    job_id = failed_task(world)
    page = signed_in("operator")
    page.goto(f"/dashboard/jobs/{job_id}")
    stays(page)
    is_seen_before_the_timeline(page, "#job-outcome")
    sized(page, size)
    expect(page.locator("#job-outcome")).to_contain_text("BROKEN")
    expect(page.locator("#job-next")).to_contain_text("Waiting for an operator")
    take(page, "Retry")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the printer is back")
    dialog.get_by_role("button", name="Retry 1 job").click()
    expect(page.locator("#result")).to_contain_text("Retry: 1 moved, now ready")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("#job-head .chip")).to_have_text("ready")
    expect(page.locator("#job-next")).to_contain_text("It is due")
    expect(page.locator(".timeline > li").first).to_contain_text("requeue")
    expect(page.locator("#job-story li").first).to_contain_text("the printer is back")
    expect(page.locator(".timeline")).to_contain_text("can")
    expect(page.locator("#job-picture .picture .here")).to_have_attribute("data-state", "ready")
    expect(page.locator("#job-outcome")).to_be_hidden()
    expect(page.locator("#result .alert")).to_be_in_viewport()
    Worker(world.task, lambda _job: None).drain()
    expect(page.locator("#job-head .chip")).to_have_text("done")
    expect(page.locator("#result .alert")).to_have_count(0)  # it said "now ready"
    expect_same_document(page)


@ON_PHONE
def test_a_row_is_fixed_and_its_difference_stands_beside_it(size, signed_in, world):
    site = f"fix-{size['width']}"
    world.site(site)
    bad = next(one for one in conversions(world, site=site) if world.state(one) == "FAILED")
    page = signed_in("operator", size=size)
    page.goto(f"/dashboard/jobs/{bad}")
    stays(page)
    take(page, "Fix data")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Currency").fill("money")
    dialog.locator("button.first").click()
    expect(dialog.get_by_label("Currency")).to_have_attribute("aria-invalid", "true")
    dialog.get_by_label("Currency").fill("TRY")
    dialog.get_by_label("Value").fill("321")
    dialog.get_by_label("gclid").fill("Cj0KCQiA_mended-77")
    dialog.locator("button.first").click()
    expect(page.locator("#result")).to_contain_text("the row was queued again")
    expect(dialog).to_have_count(0)
    expect(page.locator("#job-head .chip")).to_have_text("QUEUED")
    expect(page.locator("#job-values ins")).to_have_text(["321", "••••d-77"])
    expect_same_document(page)


@AT_DESK
def test_a_dialog_over_a_state_that_is_gone_says_so(size, signed_in, world):
    phone = f"0532 600 00 {size['width'] % 90 + 10}"
    job_id = held_order(world.service, customer_phone=phone)
    page = signed_in("operator", size=size)
    page.goto(f"/dashboard/jobs/{job_id}")
    take(page, "Cancel")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("HOLD")
    order_service(world.service).cancel(ROOT, job_id)
    expect(page.locator("#job-head .chip")).to_have_text("FAILED")  # behind the dialog
    expect(dialog).to_contain_text("it is now FAILED")
    expect(dialog.locator("button.danger")).to_be_disabled()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def test_an_action_that_comes_too_late_renews_the_page_behind_its_dialog(signed_in, world, watcher):
    watcher.expects("409")
    job_id = held_order(world.service, customer_phone="0532 600 11 11")
    page = signed_in("operator")
    page.goto(f"/dashboard/jobs/{job_id}")
    page.evaluate(DEAF)
    take(page, "Cancel")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("HOLD")
    order_service(world.service).cancel(ROOT, job_id)
    dialog.locator("button.danger").click()
    expect(page.locator("#job-head .chip")).to_have_text("FAILED")
    expect(dialog).to_contain_text("it is now FAILED")
    expect(dialog.locator("button.danger")).to_be_disabled()


def test_the_header_stays_in_sight_and_in_reach_while_the_page_scrolls(signed_in, world):
    job_id = planned_order(world.service)
    page = signed_in("operator")
    page.goto(f"/dashboard/jobs/{job_id}")
    expect(page.locator("#job-panel img.plan")).to_be_visible()
    is_seen_before_the_timeline(page, "#job-panel img.plan")
    for size in (WIDE, PHONE):
        sized(page, size)
        page.evaluate("window.scrollTo(0, 0)")
        at_first, _ = header(page)
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        expect(page.locator("#job-values")).to_be_in_viewport()
        top, height = header(page)
        assert 0 <= top <= min(at_first, 60)
        assert height < size["height"] / 4
        expect(page.locator("#job-head .chip")).to_be_in_viewport()
        take(page, "Cancel")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        dialog.get_by_role("button", name="Close").click()
        expect(dialog).to_have_count(0)
    other_actions_fold_into_a_menu(page)


def other_actions_fold_into_a_menu(page: Page) -> None:
    """On a phone, where what destroys is quiet."""
    page.keyboard.press("Escape")
    cancel = page.locator("#job-head").get_by_role("button", name="Cancel")
    expect(cancel).to_be_hidden()
    page.get_by_role("button", name="More actions").click()
    expect(cancel).to_be_in_viewport()
    page.keyboard.press("Escape")
    expect(cancel).to_be_hidden()
