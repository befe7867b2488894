"""An operator finds what needs a person, and gets to the right action from the overview."""

from __future__ import annotations

import itertools

import pytest
from playwright.sync_api import Locator, Page, expect

from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.results import Failed
from kesin.engine.worker import Worker
from kesin.lifecycle.errors import Category
from kesin.lifecycle.task import task_lifecycle
from tests.browser.checking import AT_DESK, too_wide_at_any_size
from tests.web.conftest import World

# 97 failures: what each needs is different.
MIXED = {
    "SMTP_DOWN": (Category.PERMANENT, 40),
    "MAILBOX_FULL": (Category.PERMANENT, 15),
    "NO_SUCH_STREET": (Category.VALIDATION, 38),
    "BAD_TEMPLATE": (Category.VALIDATION, 1),
    "GREYLISTED": (Category.TRANSIENT, 3),
}


_numbers = itertools.count(1)


@pytest.fixture
def letters(world: World) -> Queue:
    """A queue of the user's own program, with failures of each kind."""
    name = f"letters{next(_numbers)}"
    queue = Queue(name, task_lifecycle("letters"), world.store, clock=world.clock)
    world.service.queues[name] = queue
    for code, (category, n) in MIXED.items():
        queue.enqueue_many([NewJob({"to": f"{code}-{number}"}) for number in range(n)])
        answer = Failed(code, f"{code} it was", category=category)
        Worker(queue, lambda _job, answer=answer: answer).drain()
    return queue


def line(page: Page, queue: Queue, code: str):
    return page.locator(f"[id^=need-{queue.name}-failed-{code}]")


@AT_DESK
def test_the_overview_leads_to_the_right_action_for_every_failure(signed_in, letters, size):
    """A dialog over the overview; what it did stands at its line, which stays while it is used."""
    page = signed_in("operator", size=size)
    page.goto("/dashboard")
    assert too_wide_at_any_size(page) == []
    expect(page.get_by_role("heading", name="Needs you")).to_be_visible()
    expect(line(page, letters, "SMTP_DOWN")).to_contain_text("40 jobs")
    expect(page.locator(f"#retries-{letters.name}")).to_contain_text("3 retry automatically")
    fix = line(page, letters, "NO_SUCH_STREET").get_by_role("link", name="Fix data")
    expect(fix).to_be_visible()
    expect(line(page, letters, "BAD_TEMPLATE").get_by_role("link", name="Fix data")).to_be_visible()
    used = line(page, letters, "SMTP_DOWN").get_by_role("link", name="Retry 40 jobs")
    no_other_button_comes_under_the_pointer(page, letters, used)
    used.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("40 jobs will be retried")
    expect(dialog).not_to_contain_text("keep failing")
    dialog.get_by_role("button", name="Retry 40 jobs").click()
    expect(page.locator(".inbox .did")).to_contain_text("40 retried SMTP_DOWN")
    expect(dialog).to_have_count(0)
    expect(line(page, letters, "SMTP_DOWN")).to_have_count(0)  # without loading the page again
    expect(page.locator(f"#retries-{letters.name}")).to_contain_text("43 retry automatically")
    fix.click()
    expect(page.get_by_role("textbox", name="to", exact=True)).to_have_count(25)
    expect(page.locator("main")).to_contain_text("This page shows 25 jobs at a time")
    page.get_by_role("link", name="Older jobs").click()
    expect(page.get_by_role("textbox", name="to", exact=True)).to_have_count(13)
    assert too_wide_at_any_size(page) == []
    page.get_by_role("button", name="Dismiss jobs that cannot be corrected…").click()
    expect(dialog).to_contain_text("A dismissed job stays in the list and needs no further action.")
    dialog.get_by_role("button", name="Dismiss 38 jobs").click()
    expect(dialog).to_have_count(0)
    expect(page.locator("main")).to_contain_text("Nothing to correct")


def no_other_button_comes_under_the_pointer(page: Page, letters: Queue, used: Locator) -> None:
    """The largest group comes first; while the lines are used they stay where they are."""
    used.hover()
    at = used.bounding_box()
    letters.enqueue_many([NewJob({"to": number}) for number in range(50)])
    answer = Failed("MAILBOX_FULL", "full", category=Category.PERMANENT)
    Worker(letters, lambda _job: answer).drain()
    page.evaluate("() => htmx.trigger('#view', 'renew')")
    expect(line(page, letters, "MAILBOX_FULL")).to_contain_text("65 jobs")
    assert used.bounding_box() == at
    page.mouse.move(0, 0)
    page.evaluate("() => htmx.trigger('#view', 'renew')")
    lines = page.locator(f"[id^=need-{letters.name}]")
    expect(lines.first).to_contain_text("65 jobs")


def test_a_group_is_left_out_of_a_retry_by_its_checkbox(signed_in, letters):
    page = signed_in("operator")
    page.goto("/dashboard")
    page.locator("#inbox-retry").click()
    page.get_by_role("link", name="Retry them too").click()
    form = page.locator("form.triage")
    mine = form.locator("li", has_text=letters.name)
    mine.filter(has_text="SMTP_DOWN").get_by_role("checkbox").uncheck()
    expect(form.get_by_role("heading", name="Only the selected groups")).to_be_visible()
    form.get_by_role("button", name="Retry the selected groups").click()
    expect(line(page, letters, "MAILBOX_FULL")).to_have_count(0)
    expect(line(page, letters, "SMTP_DOWN")).to_be_visible()
