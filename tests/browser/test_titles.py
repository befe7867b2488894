"""Titles in a queue's rows: a job is found by typing a part of what it is called."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from kesin.store.records import Listing
from tests.browser.checking import ON_PHONE, PHONE, complaints, show, sized, too_wide_at_any_size
from tests.browser.conftest import NewPage
from tests.browser.served import Served


@pytest.fixture(scope="module")
def mails(served: Served) -> dict[str, str]:
    world = served.world
    world.store.write_listing("task", Listing("{to} · {order}", ("to", "order")))
    names = {"Işıl Çağlar": "2026-0041", "İrem Öztürk": "2026-0042", "x" * 300: "2027-0001"}
    return {to: world.job(payload={"to": to, "order": order}) for to, order in names.items()}


@ON_PHONE
def test_a_job_is_found_by_typing_part_of_its_title_and_the_address_keeps_it(
    served: Served, mails: dict[str, str], signed_in: NewPage, judge: Page, size
) -> None:
    page = signed_in("operator")
    sized(page, size)
    page.goto(f"{served.address}/dashboard/queues/task")
    rows = page.locator("#rows tr")
    expect(rows).to_have_count(3)
    if size == PHONE:
        page.get_by_role("button", name="Filter").click()
    field = page.get_by_role("searchbox")
    for typed in ("irem", "ozt", "0042"):
        field.fill(typed)
        expect(rows).to_have_count(1)
        link = rows.get_by_role("link")
        expect(link).to_have_text("İrem Öztürk · 2026-0042")
        expect(rows.locator(".under")).to_have_text(f"…{mails['İrem Öztürk'][-12:]}")
    expect(page).to_have_url(re.compile("text=0042"))
    page.goto(page.url)  # as a colleague does, to whom it was sent
    expect(rows).to_have_count(1)
    if size == PHONE:
        page.get_by_role("button", name="Filter").click()
    expect(field).to_have_value("0042")
    field.fill("")
    expect(rows).to_have_count(3)
    assert not too_wide_at_any_size(page)
    show(judge, page.evaluate("document.documentElement.outerHTML"))
    assert not complaints(judge, within="#rows")
    page.get_by_role("link", name=re.compile("Çağlar")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Işıl Çağlar · 2026-0041")
