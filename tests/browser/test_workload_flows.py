"""The pages of workloads from end to end: conversions, lists, orders, rules, a PDF."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest
from PIL import Image
from playwright.sync_api import FilePayload, Route, expect

from kesin.foundation.encryption import KeyRing, new_key
from kesin.store.records import Filter
from kesin.workloads.pdf import links
from kesin.workloads.pdf.engines.base import find_chromium
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from tests.browser.checking import PHONE, is_seen_before_the_timeline, too_small, too_wide
from tests.browser.conftest import FLAGS
from tests.browser.sample_data import conversions, pdfs, press
from tests.workloads.optiplan.orders_ready import held_order
from tests.workloads.pdf.documents import text

INK, PAPER = 64, 250  # shades of grey: darker than the one, lighter than the other
SCREENSHOTS = 40  # of the viewer until it has drawn; each takes a moment


def as_file(content: bytes) -> FilePayload:
    return {"name": "list.csv", "mimeType": "text/csv", "buffer": content}


def test_what_is_pressed_while_the_list_is_renewed_is_done(signed_in, world):
    held = held_order(world.service, customer_phone="0532 000 00 07")
    page = signed_in("operator")
    page.goto("/dashboard/optiplan")
    renewals: list[Route] = []
    page.route("**/optiplan/renewal*", lambda route: renewals.append(route))  # noqa: PLW0108
    with page.expect_request("**/optiplan/renewal*"):
        page.evaluate("htmx.trigger('#orders', 'renew')")
    page.locator(f"#held-{held}").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    for renewal in renewals:
        renewal.continue_()


def drawn(picture: bytes) -> bool:
    """Whether the picture shows a white page with something printed on it."""
    shades = Image.open(io.BytesIO(picture)).convert("L").histogram()
    return sum(shades[:INK]) > 0 and sum(shades[PAPER:]) > sum(shades) / 10


def test_a_pdf_is_previewed_made_and_downloaded(signed_in, world):
    Heartbeat(world.store, "press", now=world.service.queues["pdf"].now).beat()
    page = signed_in("admin")
    page.goto("/dashboard/pdf")
    templates = page.get_by_role("navigation", name="Templates")
    templates.get_by_role("link", name=re.compile("invoice$")).click()
    page.locator('[name="v/number"]').fill("SEEN-77")
    expect(page.frame_locator("#pdf-preview iframe").get_by_text("SEEN-77").first).to_be_visible()
    page.get_by_role("button", name="Make the PDF").click()
    expect(page.get_by_text("The PDF is queued.")).to_be_visible()
    newest = page.locator("#pdf-jobs tbody tr").first
    expect(newest).to_contain_text("queued")
    press(world)
    expect(newest).to_contain_text("succeeded", timeout=10_000)
    with page.expect_download() as waiting:
        newest.get_by_role("link", name="Download").click()
    assert "SEEN-77" in text(waiting.value.path().read_bytes())

    page.get_by_label("Add a row to Lines").click()
    expect(page.locator('[name="v/lines/6/quantity"]')).to_be_visible()
    expect(page.locator("#pdf-problems")).to_contain_text("Lines 7 · Quantity is missing")
    page.get_by_role("button", name="Edit as JSON").click()
    expect(page.locator("#pdf-source")).to_have_value(re.compile("SEEN-77"))

    newest.locator("td.job a").click()
    expect(page).to_have_url(re.compile("/dashboard/jobs/"))
    is_seen_before_the_timeline(page, "#job-panel iframe")


def test_a_link_is_created_and_copied(signed_in, world):
    ring = KeyRing.from_setting(new_key())
    page = signed_in("admin")
    page.context.grant_permissions(["clipboard-write"])
    with patch.object(links, "key_ring", lambda _: ring):
        page.goto(f"/dashboard/jobs/{pdfs(world)['done']}")
        page.get_by_role("button", name="Create link…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Maximum downloads").fill("3")
        dialog.get_by_role("button", name="Create link").click()
        address = dialog.locator("#new-link")
        expect(address).to_contain_text("/pdf/links/")
        expect(dialog).to_contain_text("3 / 3")
        dialog.get_by_role("button", name="Copy").click()
        expect(dialog.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("getSelection().toString()") == address.inner_text()


@pytest.mark.long  # in short: what the viewer needs is in tests/web/dashboard/jobs/test_page.py
def test_the_viewer_of_a_full_browser_shows_the_pdf_of_a_job(signed_in, world, browser):
    """The browser of the other tests has no viewer of PDFs."""
    page = signed_in("admin")
    page.goto(f"/dashboard/jobs/{pdfs(world)['done']}")
    with browser.browser_type.launch(executable_path=find_chromium("chromium"), args=FLAGS) as full:
        tab = full.new_context(storage_state=page.context.storage_state()).new_page()
        tab.goto(page.url)
        paper = tab.get_by_title("The PDF")
        paper.scroll_into_view_if_needed()
        assert any(drawn(paper.screenshot()) for _ in range(SCREENSHOTS))


def test_a_sites_rows_come_while_somebody_types(signed_in, world):
    world.site("lively")
    page = signed_in("operator")
    page.goto("/dashboard/site/lively/oci-control")
    page.locator("#fix-reason").evaluate("one => { one.closest('details').open = true }")
    page.locator("#fix-reason").press_sequentially("half a sen")
    conversions(world, site="lively")
    expect(page.locator("tr[id^=row-]").first).to_be_visible()
    page.keyboard.type("tence")
    expect(page.locator("#fix-reason")).to_have_value("half a sentence")
    expect(page.locator("details.mend")).to_have_attribute("open", "")


@pytest.mark.parametrize("width", [390, pytest.param(1440, marks=pytest.mark.long)])
def test_a_file_is_previewed_and_imported_and_its_sums_are_shown(signed_in, world, width):
    site = f"files-{width}"
    world.site(site)
    at = datetime.fromtimestamp(world.service.queues["oci"].now() / 1_000_000, UTC)
    when = f"{at - timedelta(hours=1):%Y-%m-%d %H:%M:%S}"
    lines = ["Parameters:TimeZone=UTC", "Order ID;Google Click ID;Conversion Name;Conversion Time;"]
    lines[1] += "Conversion Value;Conversion Currency;Temsilci"
    for n, amount in enumerate(("1.250,50", "1500", "1.500")):
        lines.append(f"S-{n};Cj0KCQiA_{n:012};Telefonla satış;{when};{amount};TRY;Ali")
    page = signed_in("operator")
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"/dashboard/site/{site}/oci-control")
    page.get_by_role("link", name="Import a file").click()
    page.locator("#import-file").set_input_files(as_file("\r\n".join(lines).encode("cp1254")))
    page.get_by_role("button", name="Show preview").click()
    expect(page.get_by_role("alert")).to_contain_text("'Temsilci'")
    page.get_by_role("button", name="Ignore these columns").click()
    preview = page.locator("#oci-import")
    expect(preview).to_contain_text("Windows-1254")
    expect(preview).to_contain_text("2,750.5 TRY")
    expect(preview).to_contain_text("INVALID_CONVERSION_VALUE")
    expect(page.locator("#import-ignore")).to_have_value("Temsilci")
    assert too_wide(page) == []
    assert width > PHONE["width"] or too_small(page) == []
    assert world.service.queues["oci"].jobs(Filter(tenants=(site,))).jobs == []
    page.get_by_role("button", name="Import 2 rows").click()
    expect(preview).to_contain_text("3 rows read: 2 queued")
    assert len(world.service.queues["oci"].jobs(Filter(tenants=(site,))).jobs) == 2
    page.get_by_role("link", name="Back to the rows").click()
    expect(page.locator("#oci-rows")).to_contain_text("S-0 · 1250.5 TRY")
    page.get_by_text("Sums by day").click()
    sums = page.locator("details.sums")
    expect(sums).to_contain_text("2,750.5 TRY")
    assert too_wide(page) == []
    page.locator("nav.states a", has_text="FAILED").click()  # other rows, other sums
    expect(page.get_by_text("No row matches")).to_be_visible()
    expect(sums).not_to_contain_text("2,750.5 TRY")
