"""The beginning and the end of a site: its checklist, and the dialog that removes it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.script import ack, export
from kesin.workloads.oci.site import SiteContext
from tests.browser.checking import PHONE, too_small, too_wide
from tests.web.conftest import ROOT, World

WIDTHS = [390, pytest.param(1440, marks=pytest.mark.long)]


def site_of(world: World, name: str) -> SiteContext:
    world.site(name)
    record = world.accounts.find_site(name)
    assert record is not None
    return SiteContext(world.service.workload_context("oci"), record)


def enqueue(site: SiteContext, count: int) -> None:
    at = datetime.fromtimestamp(site.queue.now() / 1_000_000, UTC) - timedelta(days=1)
    row = {"conversionName": "Phone sale", "conversionTime": at.isoformat(), "conversionValue": 1}
    rows: list[Any] = [{"externalId": f"sale-{n}", "gclid": f"Cj0KCQiA_{n:012}", **row} for n in range(count)]
    assert {result.result for result in ingest(site, rows, actor=ROOT)} == {"queued"}


def steps_of(page: Page) -> list[str]:
    """The steps that are done."""
    texts = page.locator("#oci-summary .steps li").all_inner_texts()
    return [text.split(":")[0].strip() for text in texts if "done" in text]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_checklist_of_a_new_site_says_what_is_next_and_goes_when_all_is_done(signed_in, world: World, width: int):
    site = site_of(world, f"fresh-{width}")
    page = signed_in("operator")
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"/dashboard/site/{site.id}/oci-control")
    panel = page.get_by_role("region", name="Setting up this site")
    expect(panel.get_by_role("listitem")).to_have_count(5)
    expect(panel).to_contain_text("Post a conversion, or import a file of sales.")
    assert steps_of(page) == []
    assert too_wide(page) == []
    assert width > PHONE["width"] or too_small(page) == []
    world.key("oci:script", site=site.id)
    enqueue(site, 1)
    ack(site, [one["id"] for one in export(site, limit=10, actor="key:x")], actor="key:x")
    figures = {"sent": 1, "taken": 1, "attributed": 0}
    site.put_metadata("reconciliation:2026-11", {"2026-11-02": {"Phone sale": figures}})
    page.reload()
    names = ["Key created", "First row", "First export", "First acknowledgement"]
    assert steps_of(page) == names
    days = {"2026-11-02": {"Phone sale": figures | {"attributed": 1}}}
    site.put_metadata("reconciliation:2026-11", days)
    page.reload()
    expect(page.locator("#oci-summary")).to_contain_text("Set up: the site is delivering")
    expect(panel).to_have_count(0)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_site_is_removed_in_a_dialog_once_its_rows_are_through_and_its_id_is_repeated(
    signed_in, world: World, watcher: Any, width: int
):
    watcher.expects("status of 422")
    site = site_of(world, f"leaving-{width}")
    enqueue(site, 2)
    page = signed_in("admin")
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"/dashboard/admin/sites/{site.id}")
    page.get_by_role("button", name="Remove site…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Open jobs: 2.")
    expect(dialog.get_by_role("button", name="Remove site", exact=True)).to_have_count(0)
    assert too_wide(page) == []
    assert width > PHONE["width"] or too_small(page, "dialog[open]") == []
    dialog.get_by_role("button", name="Close").click()
    ack(site, [one["id"] for one in export(site, limit=10, actor="key:x")], actor="key:x")

    page.get_by_role("button", name="Remove site…").click()
    dialog.get_by_label(re.compile("to confirm")).fill("north")
    dialog.get_by_role("button", name="Remove site", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("repeat the id of the site")
    assert world.accounts.find_site(site.id) is not None

    page.goto(f"/dashboard/site/{site.id}/oci-control/settings")
    page.get_by_role("button", name="Remove site…").click()
    expect(dialog).to_contain_text("2 finished; they are kept")
    dialog.get_by_label(re.compile("to confirm")).fill(site.id)
    dialog.get_by_role("button", name="Remove site", exact=True).click()
    expect(page).to_have_url(re.compile("/dashboard/admin/sites$"))
    expect(page.get_by_role("link", name=site.id, exact=True)).to_have_count(0)
    assert world.accounts.find_site(site.id) is None
