"""Forms as they are used: the button in sight, errors that get the focus, a readable preview."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from tests.browser.checking import (
    ON_PHONE,
    PHONE,
    WIDE,
    complaints,
    show,
    sized,
    too_small,
    too_wide,
    too_wide_at_any_size,
)
from tests.browser.sample_data import press
from tests.browser.served import Served
from tests.web.conftest import World

DESK: ViewportSize = {"width": 1280, "height": 800}
BAD_LINE = '<b title="<i>">{{ buyer.nickname }}</b>'
REFUSED = '<div data-field="reason"><p class="alert failed"><span>say why</span></p></div>'


def in_sight(one: Locator) -> bool:
    """Whether its middle is on the screen with nothing above it."""
    return bool(
        one.evaluate(
            """(one) => {
              const box = one.getBoundingClientRect();
              const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
              return one === top || one.contains(top);
            }"""
        )
    )


@pytest.fixture
def bad_invoice(served: Served, tmp_path: Path) -> Iterator[Path]:
    """The service has an invoice of its own that asks for a value that no data has."""
    settings, folder = served.world.settings, tmp_path / "templates"
    shutil.copytree(SHIPPED / "invoice", folder / "invoice")
    page = folder / "invoice" / "template.html"
    source = page.read_text("utf-8")
    page.write_text(source.replace("{% block body %}", f"{{% block body %}}\n{BAD_LINE}"), "utf-8")
    object.__setattr__(settings, "pdf_templates", folder)
    yield page
    object.__setattr__(settings, "pdf_templates", None)


def beat(world: World) -> None:
    Heartbeat(world.store, "press", now=world.service.queues["pdf"].now).beat()


def scroll(page: Page, y: float) -> None:
    page.evaluate("(y) => scrollTo({ top: y, behavior: 'instant' })", y)


def button_stays_in_sight(page: Page, button: Locator) -> None:
    for size in (WIDE, PHONE):
        sized(page, size)
        scroll(page, 0)
        end = page.locator("#pdf-file").evaluate("one => one.getBoundingClientRect().y")
        assert end > 2 * size["height"]  # the form is long enough to be scrolled
        for share in (0.0, 0.3, 0.6, 0.9):
            scroll(page, share * end)
            assert in_sight(button), (size, share)
        assert too_wide(page) == []


@ON_PHONE
def test_a_long_form_keeps_its_button_in_sight_and_when_rejected_goes_to_the_first_error(
    signed_in, world, watcher, judge, size
):
    watcher.expects("status of 422")
    beat(world)
    page: Page = signed_in("admin")
    page.goto("/dashboard/pdf?template=invoice")
    make = page.get_by_role("button", name="Make the PDF")
    button_stays_in_sight(page, make)
    sized(page, size)
    page.locator('[name="v/number"]').fill("KEPT-1")
    first = page.locator('[name="v/issued_on"]')
    first.fill("")
    page.get_by_label("Add a row to Lines").click()
    last = page.locator('[name="v/lines/6/quantity"]')
    expect(last).to_be_visible()
    expect(last).not_to_have_attribute("aria-invalid", "true")  # not before it was sent
    make.click()
    expect(first).to_be_focused()
    expect(first).to_be_in_viewport()
    assert in_sight(first)
    for field, why in ((first, "is missing"), (last, "is missing")):
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(why)
    expect(page.locator('[name="v/number"]')).to_have_value("KEPT-1")
    summary = page.locator("#pdf-values [data-errors]")
    expect(summary).to_contain_text("5 values must be corrected")
    show(judge, page.content())
    assert complaints(judge, within="main") == []
    summary.get_by_role("link", name="Lines 7 · Quantity").click()
    expect(last).to_be_focused()
    assert in_sight(last)
    last.fill("2")
    expect(last).not_to_have_attribute("aria-invalid", "true")
    expect(first).to_have_attribute("aria-invalid", "true")  # empty still, and sent once
    assert too_wide_at_any_size(page) == []


@ON_PHONE
def test_a_template_that_fails_is_readable_in_the_frame_and_at_the_job(signed_in, world, watcher, bad_invoice, size):
    watcher.expects("status of 400")
    beat(world)
    page: Page = signed_in("admin", size=size)
    page.goto("/dashboard/pdf?template=invoice")
    frame = page.frame_locator("#pdf-preview iframe")
    expect(frame.get_by_role("heading", name="The template has an error")).to_be_visible()
    expect(frame.locator("body")).to_contain_text("invoice/template.html, line 57: 'nickname' is")
    expect(frame.locator("pre")).to_contain_text(BAD_LINE)
    page.locator('[name="v/number"]').fill(f"BAD-{size['width']}")
    page.get_by_role("button", name="Make the PDF").click()
    expect(page.locator("#pdf-made")).to_contain_text("The PDF is queued.")
    press(world)
    page.locator("#pdf-made").get_by_role("link", name="Open the job").click()
    panel = page.locator("section", has=page.get_by_role("heading", name="The PDF"))
    expect(panel.last).to_contain_text("line 57: 'nickname' is missing")
    expect(panel.last.locator("pre")).to_contain_text(BAD_LINE)
    assert too_wide_at_any_size(page) == []


# Turkish words are longer.
@pytest.mark.parametrize("language", [pytest.param("en", marks=pytest.mark.long), "tr"])
def test_the_parts_of_an_order_fit_the_page(signed_in, language):
    page: Page = signed_in("admin", language=language)
    page.goto("/dashboard/optiplan/new")
    page.locator("[name='parts/0/material_code']").fill("18MM 210*280 " * 4)
    for size in (WIDE, DESK, PHONE):
        sized(page, size)
        assert too_wide(page) == []
        table = page.locator("table.parts")
        assert table.evaluate("one => one.scrollWidth <= one.parentElement.clientWidth")
        cells = page.locator(".parts :is(input, select)").evaluate_all(
            "all => all.map((one) => { const at = one.getBoundingClientRect();"
            " return [at.left, at.right, one.checkVisibility()]; })"
        )
        assert cells
        for left, right, visible in cells:
            assert visible
            assert 0 <= left <= right <= size["width"]
            assert right - left >= 44
    assert too_small(page, "#order-rows") == []  # on the phone


@ON_PHONE
def test_an_order_is_pasted_duplicated_and_corrected(signed_in, watcher, judge, size):
    watcher.expects("status of 422")
    page: Page = signed_in("admin", size=size)
    page.goto("/dashboard/optiplan/new")
    page.locator("#o-order").fill("PASTED-1")
    page.locator("[name='parts/0/material_code']").evaluate(
        """(cell) => {
          const data = new DataTransfer();
          const rows = [["18MM", "Beyaz", 18, 100, 50, 2], ["18MM", "Ceviz", 18, 60, 50, "many"]];
          data.setData("text/plain", rows.map((row) => row.join("\\t")).join("\\n") + "\\n");
          const how = { clipboardData: data, bubbles: true, cancelable: true };
          cell.dispatchEvent(new ClipboardEvent("paste", how));
        }"""
    )
    expect(page.locator("[name='parts/1/color']")).to_have_value("Ceviz")
    expect(page.locator("[data-totals]")).to_have_text("2 pieces · 1 m²")
    page.get_by_label("Duplicate row 1").click()
    expect(page.locator("[name='parts/2/color']")).to_have_value("Ceviz")
    expect(page.locator("[data-totals]")).to_have_text("4 pieces · 2 m²")
    page.get_by_role("button", name="Create order").click()
    wrong = page.locator("[name='parts/2/quantity']")
    expect(wrong).to_be_focused()
    assert in_sight(wrong)
    expect(wrong).to_have_value("many")
    expect(wrong).to_have_accessible_description("must be a number, got 'many'")
    show(judge, page.content())
    assert complaints(judge, within="main") == []
    page.get_by_role("link", name="Part 3 · Quantity (pieces)").click()
    expect(wrong).to_be_focused()
    wrong.fill("1")
    expect(page.locator("[data-totals]")).to_have_text("5 pieces · 2.3 m²")
    assert too_wide_at_any_size(page) == []


def test_an_error_of_a_dialog_stands_at_its_field(signed_in, watcher):
    watcher.expects("status of 422")
    watcher.expects("422")
    page: Page = signed_in("operator")
    page.route("**/queues/task/pause", lambda route: route.fulfill(status=422, body=REFUSED))
    page.goto("/dashboard/queues/task")
    page.get_by_role("button", name="Pause").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Pause").click()
    reason = dialog.get_by_label("Reason")
    expect(reason).to_be_focused()
    expect(reason).to_have_attribute("aria-invalid", "true")
    expect(reason).to_have_accessible_description("say why")
    expect(dialog.locator(".alert.failed")).to_have_count(0)
