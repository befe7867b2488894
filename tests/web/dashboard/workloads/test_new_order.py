"""The table of a new order: units, errors at their cells, rows copied, blocks pasted."""

import html
import re
from decimal import Decimal
from typing import Any

import pytest

from kesin.workloads.optiplan.pages.new_order import COLUMNS, MAX_CELL_CHARS, MAX_ROWS, OrderForm
from kesin.workloads.optiplan.pages.rules_form import form_schema
from kesin.workloads.optiplan.workshop.rules import default_rules, rules_json, save_rules
from tests.web.conftest import World
from tests.workloads.optiplan.orders_ready import order_service

PAGE = "/dashboard/optiplan"
ROW = {"id": "P1", "part_type": "GOVDE", "color": "Beyaz", "quantity": "2", "edge_up": "1mm"}
SENT = {f"parts/0/{name}": value for name, value in ROW.items()}


@pytest.fixture(scope="module")
def shop(shared_world: World) -> World:
    shared_world.person("ayse", "admin", all_sites=True)
    return shared_world


def post(world: World, path: str, **data: Any) -> Any:
    return world.client.post(PAGE + path, headers=world.cookie("ayse"), data=data)


def values(page: str, column: str) -> list[str]:
    return re.findall(rf'name="parts/\d+/{column}" value="([^"]*)"', html.unescape(page))


def form(*rows: dict[str, str]) -> OrderForm:
    return OrderForm.read({f"parts/{n}/{name}": text for n, row in enumerate(rows) for name, text in row.items()})


def test_every_column_of_sizes_names_its_unit(shop):
    page = shop.client.get(f"{PAGE}/new", headers=shop.cookie("ayse")).text
    for heading in ("Thickness (mm)", "Length (cm)", "Width (cm)", "Quantity (pieces)"):
        assert f'<th scope="col">{heading}</th>' in page
        assert f'aria-label="{heading} 1"' in page
    assert '<option value="040">040 (0.4 mm)</option>' in page


def test_an_error_stands_at_its_cell_with_a_link_from_the_top(shop):
    sent = SENT | {"order_id": "N-1", "parts/0/quantity": "many"}
    answer = post(shop, "/new", **sent)
    assert answer.status_code == 422
    text = html.unescape(answer.text)
    cell = 'name="parts/0/quantity" value="many" maxlength="250" aria-label="Quantity (pieces) 1"'
    assert f'{cell} inputmode="decimal" aria-invalid="true" aria-describedby="e-parts[0].qu' in text
    assert '<p class="error-text" id="e-parts[0].quantity">must be a number' in text
    assert '<a href="#e-parts[0].quantity">Part 1 · Quantity (pieces)</a>' in text
    assert '<p class="error-text" id="e-parts[0].length_cm">is missing</p>' in text
    assert 'value="N-1"' in text


def test_an_import_that_fails_marks_the_form_of_the_import(shop):
    sent = {"order_id": "N-2", "customer_phone": "0532 000 00 01", "thickness_mm": "thick"}
    answer = shop.client.post(
        f"{PAGE}/import",
        headers=shop.cookie("ayse"),
        data=sent,
        files={"file": ("a.csv", "18;600;400;2;0;;;;;;;\n", "text/csv")},
    )
    assert answer.status_code == 422
    field = re.findall(r'<input id="i-thickness"[^>]*>', answer.text)[0]
    assert 'aria-describedby="e-thickness_mm"' in field
    assert answer.text.count('aria-invalid="true"') == 1
    assert '<details class="fold" open>' in answer.text


def test_a_row_is_duplicated_below_itself(shop):
    two = SENT | {"parts/1/id": "P2", "parts/1/color": "Ceviz"}
    page = post(shop, "/new/rows", **two, do="copy:0").text
    assert values(page, "color") == ["Beyaz", "Beyaz", "Ceviz"]
    assert values(page, "id") == ["P1", "P3", "P2"]
    assert post(shop, "/new/rows", **SENT, do="copy:x").status_code == 422
    assert form(ROW).with_copy(7) == form(ROW)
    full = form(*[ROW] * MAX_ROWS)
    assert full.with_copy(0) == full


def test_a_block_of_a_spreadsheet_fills_rows_and_columns(shop):
    block = "72,2\t58\t4\r\n60\t40\t2\r\n30\t30\r\n"
    page = post(shop, "/new/rows", **SENT, do="paste:0/length_cm", block=block).text
    assert values(page, "length_cm") == ["72,2", "60", "30"]
    assert values(page, "width_cm") == ["58", "40", "30"]
    assert values(page, "quantity") == ["4", "2", ""]
    assert values(page, "color") == ["Beyaz"] * 3
    assert values(page, "id") == ["P1", "P2", "P3"]
    for wrong in ("paste:0/nothing", "paste:x/color", "paste:0", "dance"):
        assert post(shop, "/new/rows", **SENT, do=wrong, block="a\tb").status_code == 422


def test_a_block_is_read_as_typed_and_has_limits():
    read = form(ROW).with_block(0, "id", "A\tGövde\tm\nB\tarkalık\nC\tdoor")
    assert [row["part_type"] for row in read.rows] == ["GOVDE", "ARKALIK", "DOOR"]
    assert len(form(ROW).with_block(0, "id", "x\n" * (MAX_ROWS + 9)).rows) == MAX_ROWS
    wide = form(ROW).with_block(0, "desc1", "y" * 999 + "\tbeyond the last column")
    assert wide.rows[0]["desc1"] == "y" * MAX_CELL_CHARS
    assert set(wide.rows[0]) == set(COLUMNS)


def test_a_kind_that_is_unknown_is_shown_and_not_replaced(shop):
    page = post(shop, "/new/rows", **SENT, do="paste:0/part_type", block="door\tm").text
    assert "<option selected>DOOR</option>" in page


def test_no_rule_that_nobody_chooses_is_in_the_form(shop):
    page = shop.client.get(f"{PAGE}/rules", headers=shop.cookie("ayse")).text
    shown = page.partition('id="rules-form"')[2].partition("</form>")[0]
    fields = set(re.findall(r'name="v/(\w+)', shown))
    assert {"kerf_mm", "optiModeDefault", "retry_count_max", "timeouts"} <= fields
    for constant in ("cm_to_mm", "centimetre", "merge", "ackMode"):
        assert constant not in shown
    # Of these, the rules have none.
    assert set(form_schema(str)["properties"]) == fields | {"materials", "boards"}


def test_a_file_with_another_constant_keeps_it_and_the_page_warns(shop):
    orders = order_service(shop.service)
    file = orders.workshop.rules_file
    save_rules(file, default_rules().model_copy(update={"cm_to_mm_multiplier": Decimal(25)}))
    try:
        page = shop.client.get(f"{PAGE}/rules", headers=shop.cookie("ayse"))
        assert "cm_to_mm_multiplier is 25: " in page.text
        assert rules_json(orders.workshop.rules())["cm_to_mm_multiplier"] == 25
    finally:
        save_rules(file, default_rules())


def test_a_form_holds_so_many_rows_and_reads_no_other_field():
    form = OrderForm()
    for _ in range(MAX_ROWS + 5):
        form = form.with_row()
    assert len(form.rows) == MAX_ROWS
    odd = {"parts/x/id": "1", "parts/0/secret": "1", "parts/99999/id": "1", "parts/0": "1"}
    assert OrderForm.read(odd).rows == ()
