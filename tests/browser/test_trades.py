"""The trades' own pages in a browser: rows retried, a preview that follows, a hold approved."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import expect

from kesin.foundation.clock import iso
from kesin.lifecycle.model import Change
from kesin.workloads.oci import script
from kesin.workloads.oci.conversions.ingest import ingest
from tests.workloads.optiplan.orders_ready import held_order


def failed_rows(world: Any, n: int) -> None:
    house = world.service.workload_context("oci")
    site = world.accounts.find_site("north")
    rows = [
        {
            "externalId": f"sale-{one}",
            "gclid": f"Cj0KCQiA{one:06d}abcDEF",
            "conversionName": "Sale",
            "conversionTime": iso(world.clock.now()),
            "conversionValue": 10,
        }
        for one in range(n)
    ]
    born = ingest(house, site, rows, actor="tests")
    script.export(house, site, limit=n, actor="tests")
    changes = [Change(one.id or "", error_code="UNPARSEABLE_GCLID") for one in born]
    house.queue.apply("ack_failed", changes, actor="tests")


def test_chosen_rows_are_retried_and_the_result_is_exact(world, signed_in):
    failed_rows(world, 3)
    page = signed_in("admin")
    page.goto("/dashboard/site/north/oci-control?status=FAILED")
    page.get_by_label("Select sale-0").check()
    page.get_by_label("Select sale-2").check()
    page.get_by_role("button", name="Retry", exact=True).click()
    page.get_by_role("button", name="Retry: 2 rows").click()
    expect(page.get_by_role("heading", name="2 moved, 0 refused")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page.locator("tr[id^=row-]")).to_have_count(1)


def test_a_preview_follows_what_is_typed(signed_in):
    page = signed_in("admin")
    page.goto("/dashboard/pdf?template=invoice")
    page.locator('[name="v/number"]').fill("ABC-77")
    expect(page.frame_locator("iframe").get_by_text("ABC-77").first).to_be_visible()
    page.get_by_label("Add a row to Lines").click()
    expect(page.locator('[name="v/lines/6/quantity"]')).to_be_visible()
    expect(page.locator("#pdf-problems")).to_contain_text("/lines/6/quantity")
    page.get_by_role("button", name="Edit as JSON").click()
    expect(page.locator("#pdf-source")).to_have_value(re.compile("ABC-77"))


def test_a_held_order_is_approved_with_two_clicks(world, signed_in):
    job = held_order(world.service)
    page = signed_in("admin")
    page.goto("/dashboard/optiplan")
    page.locator(f"#held-{job}").get_by_role("button", name="Approve").click()
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("dialog").get_by_text("It is now")).to_be_visible()
    assert world.state(job) == "NEW"
