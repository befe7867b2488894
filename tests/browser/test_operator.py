"""The operator at 3 a.m.: 97 mixed failures, and the right action for each within five clicks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.results import Failed
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.foundation.messages import Message
from kesin.lifecycle.budget import DAY_S
from kesin.lifecycle.task import task_lifecycle
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.script import ack_failed, export
from kesin.workloads.oci.site import SiteContext
from kesin.workloads.pdf.templating.sandbox import template_failure
from tests.browser import sample_data
from tests.browser.checking import PHONE, WIDE, problems, show, too_wide
from tests.browser.conftest import serving
from tests.browser.served import Served
from tests.web.conftest import ROOT, World

MAX_CLICKS = 5
CONVERSIONS = {
    "INTERNAL_ERROR": ("TRANSIENT", 12),  # until their attempts are used up
    "UNPARSEABLE_GCLID": ("VALIDATION", 22),
    "INVALID_CONVERSION_ACTION": ("VALIDATION", 12),
    "RESOURCE_EXHAUSTED": ("RATE_LIMIT", 14),  # retries by itself
}
MAILS = {
    "BAD_ADDRESS": ("VALIDATION", 15),
    "TEMPLATE_MISSING": ("AUTH", 9),
    "SMTP_BUSY": ("TRANSIENT", 11),  # retries by itself
}
MISTAKE = "template delivery_note/template.html, line 13: 'drvier' is missing"


@pytest.fixture(
    scope="module", params=[pytest.param(WIDE, id="wide", marks=pytest.mark.long), pytest.param(PHONE, id="phone")]
)
def size(request: pytest.FixtureRequest) -> ViewportSize:
    found: ViewportSize = request.param
    return found


@pytest.fixture(scope="module")
def served(
    size: ViewportSize, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service for each size, as the tests retry what others look at."""
    del size
    with serving(request, tmp_path_factory.mktemp("night")) as running:
        fill(running.world)
        yield running


def fill(world: World) -> None:
    """97 failures of three queues."""
    for code, (category, n) in CONVERSIONS.items():
        fail_conversions(world, "north", code, category, n)
    emails = Queue("emails", task_lifecycle("emails"), world.store, clock=world.clock)
    world.service.queues["emails"] = emails
    for code, (category, n) in MAILS.items():
        emails.enqueue_many([NewJob({"to": f"{code}-{number}"}) for number in range(n)])
        answer = Failed(code, f"{code.lower()} it was", category=category)
        Worker(emails, lambda _job, answer=answer: answer).drain()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_data, "Press", BadTemplate)
        sample_data.pdfs(world)


def fail_conversions(world: World, site: str, code: str, category: str, n: int) -> None:
    found = world.accounts.find_site(site)
    assert found is not None
    place = SiteContext(world.service.workload_context("oci"), found)
    then = datetime.fromtimestamp(world.clock.monotonic(), UTC) - timedelta(days=1)
    rows: list[Any] = [
        {
            "externalId": f"{code}-{number}",
            "gclid": f"Cj0KCQiA_click-{number:06d}",
            "conversionName": "Phone sale",
            "conversionTime": then.isoformat("T", "seconds"),
            "conversionValue": 100,
        }
        for number in range(n)
    ]
    ingest(place, rows, actor=ROOT)
    while taken := [row["id"] for row in export(place, limit=n, actor="key:script")]:
        ack_failed(place, taken, code=code, message="no", category=category, actor="key:script")
        if category == "TRANSIENT":
            world.clock.advance(DAY_S)
        Sweeper([place.queue]).sweep(("cap", "recover", "revive"))


class BadTemplate(sample_data.Press):
    """Finds a name that the values of the template do not have."""

    def render(self, *_values: Any, **_more: Any) -> Any:
        problem = Message("%(name)s is missing", name="'drvier'")
        source = "\n" * 12 + "{{ drvier.name }}"
        raise template_failure("delivery_note/template.html", problem, line=13, source=source)


class Clicks:
    """Counts the clicks of an operator."""

    def __init__(self, page: Page) -> None:
        self.page, self.n = page, 0

    def on(self, place: Locator) -> None:
        self.n += 1
        place.click()

    def new_tab(self, place: Locator) -> Page:
        with self.page.context.expect_page() as opened:
            self.on(place)
        opened.value.wait_for_load_state()
        return opened.value


def left_out(page: Page, code: str) -> Locator:
    return page.get_by_role("dialog").locator("li.left-out").filter(has_text=code)


def judged(judge: Page, page: Page, within: str, **themes: bool) -> list[Any]:
    show(judge, page.content())
    return problems(judge, within, **themes)


def test_the_right_action_for_all_97_is_reached_within_five_clicks(signed_in, judge, size):
    page = signed_in("operator", size=size)
    page.goto("/dashboard")
    assert too_wide(page) == []
    expect(page.locator("#retries-oci")).to_contain_text("14 retry automatically")
    expect(page.locator("#retries-emails")).to_contain_text("11 retry automatically")
    template = page.locator("[id^=need-pdf-failed-TEMPLATE_ERROR]")  # no click
    for text in (MISTAKE, "The template's author", "Show the error"):
        expect(template).to_contain_text(text)
    expect(template).not_to_contain_text("The sender")
    clicks = Clicks(page)
    clicks.on(page.get_by_role("link", name="Retry 21 in 2 groups"))
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Needs you")).to_be_focused()
    assert judged(judge, page, "dialog", dark=True) == []
    expect(dialog).to_contain_text("21 jobs will be retried")
    expect(dialog).to_contain_text("51 jobs are left out")
    expect(dialog).to_contain_text("49 jobs with VALIDATION errors will keep failing until their data is corrected.")
    fix = left_out(page, "UNPARSEABLE_GCLID").get_by_role("link", name="Fix data")
    tab = clicks.new_tab(fix)
    expect(tab).to_have_url(re.compile("code=UNPARSEABLE_GCLID"))
    expect(tab.locator("tr[id^=row-]")).to_have_count(22)
    tab.close()
    settings = left_out(page, "INVALID_CONVERSION_ACTION")  # of the site are what is wrong
    tab = clicks.new_tab(settings.get_by_role("link", name="Open site settings"))
    expect(tab).to_have_url(re.compile("/site/north/oci-control/settings$"))
    tab.close()
    addresses = left_out(page, "BAD_ADDRESS")
    expect(addresses.get_by_role("checkbox", name="Dismiss 15 jobs")).to_be_visible()
    tab = clicks.new_tab(addresses.get_by_role("link", name="Fix data"))
    expect(tab.get_by_role("textbox", name="to", exact=True)).to_have_count(15)
    assert too_wide(tab) == []
    assert judged(judge, tab, "main", light=True) == []
    tab.get_by_role("textbox", name="to", exact=True).first.fill("ali@example.org")
    tab.get_by_role("button", name="Enqueue corrected jobs").click()
    expect(tab.locator("#result")).to_contain_text("1 corrected job has been enqueued")
    expect(tab.get_by_role("textbox", name="to", exact=True)).to_have_count(14)
    tab.close()
    clicks.on(dialog.get_by_role("button", name="Retry 21 jobs"))
    expect(dialog).to_have_count(0)
    assert clicks.n <= MAX_CLICKS
    done = page.locator("#inbox-lines .did")
    expect(done).to_have_count(2)
    expect(done.nth(0)).to_contain_text("9 retried TEMPLATE_MISSING")
    expect(done.nth(1)).to_contain_text("12 retried INTERNAL_ERROR")
    expect(page.locator("[id^=need-oci-FAILED-INTERNAL_ERROR]")).to_have_count(0)
    expect(page).to_have_url(re.compile("/dashboard$"))
    page.evaluate("htmx.trigger('#view', 'renew')")
    expect(page.locator("#retries-emails")).to_contain_text("20 retry automatically")
    expect(done).to_have_count(2)  # a renewal takes them away as little as the lines around them
    done.first.get_by_role("button", name="Dismiss").click()
    expect(done).to_have_count(1)


def test_fix_data_lists_the_sites_of_this_error_the_worst_first(signed_in, world, size):
    world.site("west")
    fail_conversions(world, "south", "BAD_VALUE", "VALIDATION", 2)
    fail_conversions(world, "west", "BAD_VALUE", "VALIDATION", 3)
    page = signed_in("operator", size=size)
    page.goto("/dashboard")
    line = page.locator("[id^=need-oci-FAILED-BAD_VALUE]")
    line.get_by_role("link", name="Fix data").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".places li")).to_have_text([re.compile("west.*3 jobs"), re.compile("south.*2 jobs")])
    expect(dialog.get_by_role("button", name="Retry")).to_have_count(0)
    with page.context.expect_page() as opened:
        dialog.get_by_role("link", name="south").click()
    tab = opened.value
    expect(tab).to_have_url(re.compile("/site/south/oci-control.*BAD_VALUE"))
    expect(tab.locator("tr[id^=row-]")).to_have_count(2)
    tab.close()
    dialog.get_by_role("button", name="Close").click()
    one_site = page.locator("[id^=need-oci-FAILED-UNPARSEABLE_GCLID]").get_by_role("link", name="Fix data")
    one_site.click()
    expect(page).to_have_url(re.compile(r"/site/north/oci-control\?.*code=UNPARSEABLE_GCLID"))
