"""Order lists, solutions and settings of the workshop: whatever lies there is read or refused."""

import json
from contextlib import suppress

import pytest
from hypothesis import example
from hypothesis import strategies as st
from lxml import etree

from kesin.workloads.optiplan.api.schemas import parse_json
from kesin.workloads.optiplan.artifacts import _parse_mm, _parse_plans
from kesin.workloads.optiplan.customers import normalise_phone
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.optimizer.input import read_batch, read_json
from kesin.workloads.optiplan.optimizer.model import Unplannable
from kesin.workloads.optiplan.optimizer.optimise import optimise
from kesin.workloads.optiplan.optimizer.output.xml import solution_xml
from kesin.workloads.optiplan.orders.order_list import BadOrderList, ListDefaults, read_order_file
from kesin.workloads.optiplan.orders.payload import MAX_PARTS, Payload, payload_json, read_payload, validate_payload
from kesin.workloads.optiplan.orders.safe_xlsx import UnreadableSpreadsheet, XlsxBounds, check_xlsx, repack_xlsx
from kesin.workloads.optiplan.pages.new_order import MAX_ROWS, OrderForm
from kesin.workloads.optiplan.pipeline.solution import check_xml
from kesin.workloads.optiplan.pipeline.transform import transform_order
from kesin.workloads.optiplan.pipeline.workbook import write_batches
from kesin.workloads.optiplan.pipeline.xlsx_template import read_template
from kesin.workloads.optiplan.workshop.json_file import read_settings_file
from kesin.workloads.optiplan.workshop.paths import paths_json, read_paths
from kesin.workloads.optiplan.workshop.rules import default_rules, read_rules, rules_json
from tests.faults.fuzz import answered, broken, broken_json, broken_parts, broken_text, given
from tests.workloads.optiplan.order_bodies import order
from tests.workloads.optiplan.workbooks import SHIPPED, part_of, sheet_of, with_part

ROW = ["18MM", 722, 580.5, 4, "1-Boyuna", "x", "", "1mm", "", "D1", 4242, "kapak"]
SHEET = "xl/worksheets/sheet1.xml"
PARTS = (SHEET, "xl/workbook.xml", "xl/sharedStrings.xml", "xl/styles.xml", "[Content_Types].xml")
XLSX = sheet_of([["RENK: Beyaz", "18MM 210*280"], ROW, [None, *ROW[1:]]])
CSV = "RENK: Açık Meşe;18MM 210*280\r\n18MM;722,5;580;4;2-Enine;x;;;1mm;D1;a;b\r\n".encode()
LISTS = broken(CSV, CSV.replace(b";", b",")) | broken_parts(XLSX, *PARTS) | broken(XLSX)
SOLUTION = b"""<?xml version="1.0" encoding="utf-8"?>
<Solutions><Solution name="p001" algo="FGE" best="1" mqBoards="11.76" patterns="2" cycles="3"/>
<Solution name="p002"><Layout/></Solution></Solutions>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("workshop")


def with_value(value: str) -> bytes:
    sheet = part_of(XLSX, SHEET).replace(b"<v>4242</v>", f"<v>{value}</v>".encode())
    return with_part(XLSX, SHEET, sheet)


def order_in(data: bytes) -> Payload:
    return read_order_file(
        "Ali Usta.xlsx", data, order_id="S-1", customer_phone="0555 123 45 67", defaults=ListDefaults(color="Beyaz")
    )


@given(LISTS)
@example(with_value("1e999"))
@example(with_value("NaN"))
def test_a_list_is_an_order_or_a_list_of_problems(data):
    payload = answered(BadOrderList, order_in, data)
    if isinstance(payload, BadOrderList):
        assert payload.problems
        return
    assert 0 < len(payload.parts) <= MAX_PARTS
    assert read_payload(json.loads(json.dumps(payload_json(payload)))) == payload


@given(broken(XLSX, SHIPPED) | broken_parts(XLSX, *PARTS))
@example(XLSX[:40] + XLSX[41:])  # its first part begins before the file does
def test_a_workbook_is_safe_or_refused_and_what_is_safe_stays_so(data):
    with suppress(UnreadableSpreadsheet):
        safe = repack_xlsx(data, XlsxBounds())
        check_xlsx(safe, XlsxBounds(max_bytes=100_000_000))


@given(broken(SHIPPED) | broken_parts(SHIPPED, *PARTS))
def test_a_template_is_good_or_told_to_be_bad(folder, data):
    (folder / "template.xlsx").write_bytes(data)
    result = answered(OrderProblem, read_template, folder / "template.xlsx")
    if isinstance(result, OrderProblem):
        assert result.code == OptiCode.TEMPLATE_INVALID
    else:
        assert result == data


@given(broken(SOLUTION))
def test_a_solution_is_checked_or_refused_without_a_word_of_what_stands_there(folder, data):
    (folder / "plan.xml").write_bytes(data)
    result = answered(OrderProblem, check_xml, folder / "plan.xml")
    if isinstance(result, OrderProblem):
        assert result.code == OptiCode.XML_INVALID
        assert "FGE" not in result.message
        return
    assert result["size_bytes"] == len(data)
    json.dumps(result["best"], allow_nan=False)


@pytest.fixture(scope="module")
def planned(folder):
    """A batch as the optimiser takes it, and the XML it makes of it."""
    rules = default_rules()
    (folder / "good.xlsx").write_bytes(SHIPPED)
    body = read_payload(order())
    batches = transform_order(body, rules)[0]
    (path,) = write_batches(
        folder,
        "00000000-0000-7000-8000-000000000000",
        batches,
        read_template(folder / "good.xlsx"),
        order=body,
        rules=rules,
    )
    return path, solution_xml([optimise(one) for one in read_batch(path)])


@given(data=st.data())
def test_a_plan_is_drawn_as_the_xml_says_or_refused(planned, data):
    path, xml = planned
    with suppress(etree.XMLSyntaxError):
        root = etree.fromstring(data.draw(broken(xml)))
        with suppress(OrderProblem):
            assert _parse_plans(path, root, "a batch")


@given(data=st.data())
def test_a_batch_is_planned_or_refused(planned, folder, data):
    path, _ = planned
    file = folder / "batch.xlsx"
    file.write_bytes(data.draw(broken_parts(path.read_bytes(), *PARTS)))
    beside = json.loads(path.with_suffix(".json").read_text())
    result = data.draw(broken(json.dumps(beside).encode()) | broken_json(beside).map(json_bytes))
    file.with_suffix(".json").write_bytes(result)
    with suppress(Unplannable):
        assert read_batch(file)


@pytest.mark.parametrize("size", ["1e999999", "9" * 5_000, "NaN", "-1", "٣"])
def test_a_size_that_would_take_for_ever_is_none(size):
    with pytest.raises(ValueError):
        _parse_mm(size)


def test_settings_of_a_board_that_lie_too_deep_are_refused(folder):
    (folder / "deep.json").write_text("[" * 100_000)
    with pytest.raises(Unplannable):
        read_json(folder / "deep.json")


def json_bytes(value):
    return json.dumps(value).encode()


FULL = order(opti_mode="A", customer_snapshot_name="Ali", plate_size={"width_mm": 2100, "height_mm": 2800})


@given(broken_json(FULL))
def test_an_order_is_read_or_refused_field_by_field(body):
    result = validate_payload(body)
    if isinstance(result, Payload):
        assert read_payload(json.loads(json.dumps(payload_json(result)))) == result
    else:
        assert result
        json.dumps([one.field + one.message for one in result]).encode()


@given(broken(json.dumps(FULL).encode()), st.sampled_from(["application/json", "text/csv", ""]))
def test_a_body_is_json_or_refused(body, kind):
    with suppress(OrderProblem):
        parse_json(body, kind)


@given(broken_json(rules_json(default_rules())))
def test_rules_are_taken_or_refused(body):
    with suppress(OrderProblem):
        rules = read_rules(body)
        assert read_rules(json.loads(json.dumps(rules_json(rules)))) == rules


@given(data=st.data())
def test_paths_are_taken_or_refused(folder, data):
    here = dict.fromkeys(PATHS, "somewhere")
    with suppress(OrderProblem):
        paths = read_paths(data.draw(broken_json(here)), folder)
        assert read_paths(paths_json(paths), folder) == paths


PATHS = {
    "optiplanningExePath": "built-in",
    "optiplanningImportFolder": "import",
    "optiplanningExportFolder": "export",
    "optiplanningRulesFolder": "rules",
    "machineDropFolder": "machine",
    "tempFolder": "temp",
    "xlsxTemplatePath": "template.xlsx",
}


@given(broken(json.dumps(PATHS).encode(), b"\xef\xbb\xbf{}"))
def test_a_settings_file_is_json_or_unavailable(folder, data):
    (folder / "paths.json").write_bytes(data)
    result = answered(OrderProblem, read_settings_file, folder / "paths.json", lambda body: body)
    assert not isinstance(result, OrderProblem) or result.code == OptiCode.CONFIG_UNAVAILABLE


@given(broken_text("+90 (0) 555 123 45 67", "0090 555", "0555 123 45 67", "\uff0b90 555"))
def test_a_phone_is_spelled_one_way_or_not_at_all(text):
    spelled = normalise_phone(text)
    assert normalise_phone(spelled) == spelled
    assert spelled == "" or (spelled[0] == "+" and spelled[1:].isascii() and spelled[1:].isdigit())


FORM = ("parts/0/length_cm", "parts/17/color", "order_id", "parts/²/quantity", "plate/width_mm")


@given(st.dictionaries(broken_text(*FORM), broken_text("72,5", "Beyaz"), max_size=6))
@example({"parts/²/length_cm": "1"})
def test_a_typed_order_is_rows_of_text(fields):
    form = OrderForm.read(fields)
    assert len(form.rows) <= MAX_ROWS
    validate_payload(form.with_row().without_row(0).body())
