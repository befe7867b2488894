"""Import files, read back with another library than the writer's."""

import io
import json
import os
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.styles import Font
from openpyxl.worksheet.worksheet import Worksheet

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.payload import Payload
from kesin.workloads.optiplan.pipeline.transform import ImportBatch, transform_order
from kesin.workloads.optiplan.pipeline.workbook import build_batch_xlsx, write_batches
from kesin.workloads.optiplan.pipeline.xlsx_template import SHEET, TAGS
from kesin.workloads.optiplan.workshop.rules import Rules, default_rules
from kesin.workloads.optiplan.workshop.saw_rules import RateRules
from tests.workloads.optiplan.order_bodies import back, board, part, parts, payload
from tests.workloads.optiplan.workbooks import HEADINGS, SHIPPED, cells_of, changed, part_of

JOB = "01890a5d-ac96-774b-bcce-b302099a8057"
RULES = default_rules()
TEMPLATE = SHIPPED


def batches(*several: dict[str, Any]) -> tuple[ImportBatch, ...]:
    return transform_order(payload(*several), RULES)[0]


def made(*several: dict[str, Any], template: bytes = TEMPLATE) -> bytes:
    (batch,) = batches(*several)
    return build_batch_xlsx(batch, template)


def write(folder: Path, *several: dict[str, Any], **more: Any) -> list[Path]:
    order = payload(*several)
    return write_batches(folder, JOB, batches(*several), TEMPLATE, order=order, rules=RULES, **more)


def test_rows_begin_below_tags_and_headings_and_where_there_is_nothing_there_is_no_cell():
    one = part(length_cm=120.55, edge_up="040", edge_lo="1mm", iidesc="raf", desc1="sol")
    data = made(one, part(id="p2", grain=3, edge_up="1mm"))
    assert cells_of(data, SHEET) == [
        list(TAGS),
        list(HEADINGS),
        ["18MM 210*280", 1205.5, 580, 4, 1, "GOVDE_p1_TRIM_10.00", 0.4, 1, "", "", "raf", "sol"],
        ["18MM 210*280", 722, 580, 4, 3, "GOVDE_p2_TRIM_10.00", 1, "", "", "", "", ""],
    ]
    sheet = part_of(data, "xl/worksheets/sheet1.xml").decode()
    assert 'r="G4"' in sheet
    for absent in ("H4", "I4", "J4", "K4", "L4"):
        assert f'r="{absent}"' not in sheet


def test_text_stays_text():
    texts = ["=1+1", "+cmd", "-2", "@SUM(A1)", "=HYPERLINK(A1)", "#N/A", "007", "1e5", "TRUE", "_x0041_"]
    data = made(*(part(material_code=text, iidesc=text, desc1=text) for text in texts))
    assert [(row[0], row[10], row[11]) for row in cells_of(data, SHEET)[2:]] == [(text,) * 3 for text in texts]
    assert b"<f" not in part_of(data, "xl/worksheets/sheet1.xml").replace(b"<formatPr", b"")


@given(st.lists(parts(st.just("Beyaz")), min_size=1, max_size=5))
@settings(max_examples=settings.default.max_examples // 8)
def test_every_row_reads_back(several: list[dict[str, Any]]):
    for batch in batches(*several):
        rows = cells_of(build_batch_xlsx(batch, TEMPLATE), SHEET)[2:]
        assert len(rows) == len(batch.rows)
        for read, row in zip(rows, batch.rows, strict=True):
            expected = [
                "" if cell is None else float(cell) if isinstance(cell, Decimal | int) else cell for cell in row
            ]
            assert read == expected


def test_sample_rows_of_the_template_are_gone_and_the_rest_stays_as_it_is():
    def dress(sheet: Worksheet) -> None:
        for number in range(3, 40):
            sheet.cell(number, 1, "sample")
            sheet.cell(number, 20, "far")
        sheet.merge_cells("A5:C6")
        sheet["B2"] = "Boy"
        sheet["B2"].font = Font(bold=True, color="FF0000")
        sheet.column_dimensions["B"].width = 33
        assert sheet.parent
        sheet.parent.create_sheet("Notlar")["A1"] = "=1+1"

    data = made(part(), template=changed(dress))
    rows = cells_of(data, SHEET)
    assert len(rows) == 3
    assert {cell for row in rows for cell in row} & {"sample", "far"} == set()
    book = openpyxl.load_workbook(io.BytesIO(data))
    assert book.sheetnames == [SHEET, "Notlar"]
    assert book["Notlar"]["A1"].value == "=1+1"
    sheet = book[SHEET]
    assert [cell.value for cell in sheet[1]] == list(TAGS)
    assert (sheet["B2"].value, sheet["B2"].font.b) == ("Boy", True)
    assert sheet.column_dimensions["B"].width == 33


def test_the_same_batch_gives_the_same_bytes():
    several = [part(id=f"p{number}", color="Meşe") for number in range(20)]
    assert made(*several) == made(*several)
    with zipfile.ZipFile(io.BytesIO(made(*several))) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert b"2000-01-01" in part_of(made(*several), "docProps/core.xml")


def test_one_file_a_batch_and_the_board_beside_it(tmp_path: Path):
    folder = tmp_path / "import"
    paths = write(folder, part(color="Meşe"), back(), part(color="Mese"))
    assert [path.name for path in paths] == [
        f"{JOB}_GOVDE_Mese_18mm.xlsx",
        f"{JOB}_ARKALIK_Beyaz_8mm.xlsx",
        f"{JOB}_GOVDE_Mese-2_18mm.xlsx",
    ]
    assert sorted(folder.iterdir()) == sorted([*paths, *(path.with_suffix(".json") for path in paths)])
    assert json.loads(paths[1].with_suffix(".json").read_bytes()) == {
        "plate_w_mm": 2100,
        "plate_h_mm": 2800,
        "trim_mm": 5,
        "offcut_length_mm": 400,
        "offcut_width_mm": 150,
        "thickness_mm": 8,
        "saw": {
            "name": "beam saw",
            "max_stages": 3,
            "first_cut": "any",
            "kerf_rip_mm": 4,
            "kerf_cross_mm": 4,
            "smallest_strip_mm": 40,
            "smallest_piece_mm": 0,
            "largest_cut_mm": 4300,
            "largest_rip_mm": 4300,
            "head_cut": False,
            "book_height_mm": 75,
        },
        "boards": [],
        "rates": {"currency": "TRY", "cut_metre": 0, "band_metre": 0, "bands": {}},
        "effort": "normal",
        "rack": [],
    }


def settings_of(folder: Path, order: Payload, rules: Rules) -> dict[str, Any]:
    (batch,) = transform_order(order, rules)[0]
    (path,) = write_batches(folder, JOB, [batch], TEMPLATE, order=order, rules=rules)
    content: dict[str, Any] = json.loads(path.with_suffix(".json").read_bytes())
    return content


def test_the_choices_of_an_order_and_the_boards_of_its_thickness_are_beside_the_parts(tmp_path: Path):
    boards = (board(code="W18"), board(code="W8", thickness_mm=8))
    rates = RateRules(bands={"1mm": Decimal("2.5"), "040": Decimal(1)})
    rules = RULES.model_copy(update={"boards": boards, "rates": rates})
    order = payload(effort="quick", saw_profile="sliding saw")
    settings = settings_of(tmp_path / "a", order, rules)
    assert (settings["effort"], settings["saw"]["name"]) == ("quick", "sliding saw")
    assert [each["code"] for each in settings["boards"]] == ["W18"]
    assert settings["rates"]["bands"] == {"1 mm": 2.5, "0.4 mm": 1}  # their names in a plan
    own = payload(plate_size={"width_mm": 1830, "height_mm": 3660})
    settings = settings_of(tmp_path / "b", own, rules)
    assert (settings["plate_w_mm"], settings["boards"]) == (1830, [])


def test_the_board_is_there_before_the_parts_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    order: list[str] = []
    replace = Path.replace

    def noted(self: Path, target: Path) -> Path:
        order.append(Path(target).suffix)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", noted)
    write(tmp_path, part())
    assert order == [".json", ".xlsx"]


def test_what_was_dropped_already_is_not_written_with_other_content(tmp_path: Path):
    (path,) = write(tmp_path, part(quantity=1))
    before = path.read_bytes()
    assert write(tmp_path, part(quantity=2)) == [path]
    assert path.read_bytes() == before
    write(tmp_path, part(quantity=2), replace=True)
    assert cells_of(path.read_bytes(), SHEET)[2][3] == 2


def test_a_pass_that_was_cut_short_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    several = [part(color=color) for color in ("a", "b", "c")]
    calls = 0
    replace = Path.replace

    def dies(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == 4:
            os.link(self, tmp_path / f".{JOB}_left.xlsx.00.tmp")
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, *several)
    assert len(list(tmp_path.glob("*.xlsx"))) == 1
    paths = write(tmp_path, *several)
    assert sorted(tmp_path.glob("*.xlsx")) == sorted(paths)
    assert not list(tmp_path.glob(".*"))


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OrderProblem) as caught:
        write(tmp_path / "file", part())
    assert caught.value.code is OptiCode.EXPORT_DIR_UNWRITABLE
    assert str(tmp_path / "file") in caught.value.message
