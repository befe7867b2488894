"""The lists of workloads in a browser: they hold still, sort what is whole, and wrap errors."""

from __future__ import annotations

import itertools
import re

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from kesin.workloads.pdf.jobs.store import PdfJobStatus
from kesin.workloads.pdf.services import open_job_store
from tests.browser.checking import AT_DESK, PHONE, WIDE, complaints, show, sized, too_wide, too_wide_at_any_size
from tests.browser.test_flows import row
from tests.browser.test_lists import place, shown
from tests.web.conftest import ROOT, World
from tests.web.dashboard.workloads.test_lists import ListedRows, conversions, orders, pdfs

_numbers = itertools.count(1)
RENEW_LIST = "() => htmx.trigger('[data-rows]', 'renew')"


def lists(**short: ViewportSize) -> pytest.MarkDecorator:
    """These lists at this size; the long form has every list at every size."""
    return pytest.mark.parametrize(
        ("listed", "size"),
        [
            pytest.param(
                kind,
                size,
                id=f"{kind}-{'phone' if size == PHONE else 'wide'}",
                marks=[pytest.mark.long] * (short.get(kind) != size),
            )
            for kind in ("oci", "pdf", "optiplan")
            for size in (WIDE, PHONE)
        ],
        indirect=["listed"],
    )


@pytest.fixture
def listed(request, world: World) -> ListedRows:
    if request.param == "oci":
        site = f"held{next(_numbers)}"
        world.site(site)
        return conversions(world, site)
    return pdfs(world) if request.param == "pdf" else orders(world)


def opened(signed_in, listed: ListedRows, size) -> Page:
    page: Page = signed_in("admin", size=size)
    page.goto(f"{listed.path}?{listed.filtered}")
    return page


def numbers(page: Page) -> list[int]:
    """What the count says: how many of how many."""
    return [int(n) for n in re.findall(r"\d+", page.locator("#list-count").inner_text())]


@lists()  # in short: test_lists.py, as the list of a queue; tests/web/dashboard/workloads/test_lists.py
def test_rows_hold_still_with_their_current_state(signed_in, listed, judge, size):
    jobs = [listed.create() for _ in range(3)][::-1]
    page = opened(signed_in, listed, size)
    expect(row(page, jobs[0])).to_be_visible()
    row(page, jobs[1]).hover()
    before, at, [_, total] = shown(page), place(row(page, jobs[1])), numbers(page)
    assert before[:3] == jobs
    late = [listed.create() for _ in range(2)]
    fresh = page.locator("#list-news").get_by_role("button", name="2 new", exact=True)
    expect(fresh).to_be_visible()
    listed.leave(jobs[0])
    expect(row(page, jobs[0])).to_contain_text(listed.left)
    assert shown(page) == before
    assert place(row(page, jobs[1])) == pytest.approx(at, abs=1)
    assert numbers(page)[1] == total + (1 if listed.filtered else 2)
    if listed.filtered:
        expect(row(page, jobs[0])).to_have_class("stale")
        expect(page.locator("#list-count")).to_contain_text("1 no longer match")
    show(judge, page.content())
    assert complaints(judge, within="[data-rows]") == []
    assert not too_wide(page)
    fresh.click()
    expect(row(page, late[0])).to_be_visible()
    expect(row(page, jobs[0])).to_have_count(0 if listed.filtered else 1)
    expect(fresh).to_have_count(0)
    assert shown(page)[:2] == late[::-1]
    assert not too_wide_at_any_size(page)


@lists(oci=WIDE)
def test_the_store_sorts_by_creation_and_the_browser_what_is_whole(signed_in, listed, size):
    jobs = [listed.create() for _ in range(2)][::-1]
    page = opened(signed_in, listed, size)
    page.locator(".sort:visible").filter(has_text="Created").first.click()
    expect(page).to_have_url(re.compile(r"order=oldest"))
    assert "part=" not in page.url
    expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
    order = shown(page)
    assert order.index(jobs[1]) < order.index(jobs[0])
    head = page.get_by_role("columnheader", name="State")
    assert head.get_by_role("button").get_attribute("title") == ("Sorts this page, which shows all matching rows.")
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(page.locator("th[aria-sort=ascending]")).to_have_count(1)
    sorted_ = shown(page)
    with page.expect_response(re.compile("/renewal")):
        page.evaluate(RENEW_LIST)
    assert shown(page) == sorted_
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(head.get_by_role("button")).to_be_focused()
    listed.create()
    expect(page.locator("#list-news button")).to_be_visible()
    expect(head.get_by_role("button")).to_have_count(0)  # not all that match are here
    page.locator("#list-news button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")


# What rests above a list


@AT_DESK
def test_a_warning_that_goes_pulls_no_row_from_under_the_pointer(signed_in, world: World, size):
    site = f"above{size['width']}"
    world.site(site)
    listed = conversions(world, site)
    [job] = [listed.create()]
    world.service.commands.pause(ROOT, "oci", site=site, reason="a pause")
    page = opened(signed_in, listed, size)
    warning = page.locator("#oci-summary .alert")
    expect(warning).to_have_count(1)
    row(page, job).hover()
    at = place(row(page, job))
    world.service.commands.resume(ROOT, "oci", site=site)
    page.evaluate("() => htmx.trigger('#oci-summary', 'renew')")
    expect(warning).to_have_count(0)
    assert place(row(page, job)) == pytest.approx(at, abs=1)
    world.service.commands.pause(ROOT, "oci", site=site, reason="again")
    page.evaluate("() => htmx.trigger('#oci-summary', 'renew')")
    expect(warning).to_have_count(1)
    assert place(row(page, job)) == pytest.approx(at, abs=1)
    world.service.commands.resume(ROOT, "oci", site=site)
    page.locator("h1").hover()  # no one uses the list: the gap closes
    page.evaluate("() => { scrollTo(0, 0); htmx.trigger('#oci-summary', 'renew'); }")
    expect(warning).to_have_count(0)
    expect(page.locator(".list-head")).to_have_css("padding-top", "0px")


# Errors


def height(of: Locator) -> float:
    box = of.bounding_box()
    assert box
    return box["height"]


def test_the_error_of_a_pdf_wraps_to_two_lines_and_unfolds(signed_in, world, judge):
    jobs = open_job_store(world.service.workload_context("pdf"))
    job = jobs.create_job("invoice", {"variables": {"number": "F-1"}}, owner="user:ayse").job_id
    jobs.update_status(job, PdfJobStatus.RUNNING)
    jobs.update_status(job, PdfJobStatus.FAILED, error_code="TEMPLATE_ERROR", error_message="so it was laid out")
    page = signed_in("admin")
    page.goto("/dashboard/pdf")
    why = row(page, job).locator("summary")
    expect(why).to_contain_text("TEMPLATE_ERROR")
    assert (why.get_attribute("title") or "")[-12:] in why.inner_text()
    folded = {}
    for name, size in {"desk": WIDE, "phone": PHONE}.items():
        sized(page, size)
        folded[name] = height(why)
        assert 16 < folded[name] <= 34, "two lines"
    why.press("Enter")
    page.wait_for_function("() => document.querySelector('.clamp[open]')")
    assert height(why) > folded["phone"]
    sized(page, WIDE)
    assert height(why) > folded["desk"]
    with page.expect_response(re.compile("/renewal")):
        page.evaluate(RENEW_LIST)
    expect(page.locator(".clamp[open]")).to_have_count(1)
    show(judge, page.content())
    assert complaints(judge, within="#pdf-jobs") == []
    assert not too_wide_at_any_size(page)
