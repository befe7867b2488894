"""The template: the sheet, the tags, and one code for everything that can be wrong with it."""

import importlib.util
import unicodedata
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import openpyxl
import pytest
from openpyxl.worksheet.worksheet import Worksheet

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline.xlsx_template import SHEET, TAGS, read_template
from kesin.workloads.optiplan.workshop.paths import load_paths
from tests.workloads.optiplan.workbooks import HEADINGS, SHIPPED, cells_of, changed, saved, with_part

SCRIPT = Path(__file__).parents[4] / "scripts" / "make-optiplan-template.py"


def reason(path: Path) -> str:
    with pytest.raises(OrderProblem) as caught:
        read_template(path)
    assert caught.value.code is OptiCode.TEMPLATE_INVALID
    assert caught.value.details["template"] == str(path)
    return str(caught.value.details["reason"])


def reason_of(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "Excel_sablon.xlsx"
    path.write_bytes(data)
    return reason(path)


def test_the_shipped_template_is_good_and_what_the_script_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert read_template(load_paths(tmp_path / "new" / "paths.json").template) == SHIPPED
    assert cells_of(SHIPPED, SHEET) == [list(TAGS), list(HEADINGS)]
    script = _loaded(SCRIPT)
    monkeypatch.setattr(script, "TEMPLATE", tmp_path / "made.xlsx")
    script.main()
    assert cells_of((tmp_path / "made.xlsx").read_bytes(), SHEET) == cells_of(SHIPPED, SHEET)


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_optiplan_template", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_more_sheets_and_other_headings_are_fine_but_no_missing_file(tmp_path: Path):
    assert "cannot be read" in reason(tmp_path / "none.xlsx")
    assert "cannot be read" in reason(tmp_path)

    def change(sheet: Worksheet) -> None:
        sheet["A2"] = "P_CODE_MAT"  # the second variant
        sheet["A3"] = "18MM 210*280"
        assert sheet.parent
        sheet.parent.create_sheet("Notlar")

    path = tmp_path / "x.xlsx"
    path.write_bytes(changed(change))
    read_template(path)


def _rename(title: str, sheet: Worksheet) -> None:
    sheet.title = title


def test_the_sheet_has_exactly_its_name(tmp_path: Path):
    for title in ("SABLON", "Şablon", unicodedata.normalize("NFD", SHEET)):
        renamed = changed(partial(_rename, title))
        assert reason_of(tmp_path, renamed) == "there is no sheet named ŞABLON"
    book = openpyxl.Workbook()
    book.create_chartsheet(SHEET)
    assert reason_of(tmp_path, saved(book))


@pytest.mark.parametrize(
    ("cell", "value", "expected"),
    [
        ("H1", "[P_EDGE_MAT_LO]", "cell 8 must be [P_EGDE_MAT_LO]"),
        ("A1", None, "cell 1 must be [P_CODE_MAT]; it is null"),
        ("A1", " [P_CODE_MAT]", "cell 1"),
        ("A1", "[p_code_mat]", "cell 1"),
        ("B1", 5, "cell 2 must be [P_LENGTH]; it is 5"),
        ("L1", None, "it has 11"),
        ("M1", "[P_MORE]", "it has 13"),
        (None, None, "it has 0"),
    ],
)
def test_the_tags_are_exactly_these_in_the_first_row(tmp_path: Path, cell: str | None, value: Any, expected: str):
    def change(sheet: Worksheet) -> None:
        if cell is None:
            sheet.insert_rows(1)
        else:
            sheet[cell] = value

    assert expected in reason_of(tmp_path, changed(change))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x" * 3_000_000,
        SHIPPED[:2000],
        with_part(SHIPPED, "xl/workbook.xml", b"<unclosed"),
        with_part(SHIPPED, "xl/worksheets/sheet1.xml", b"<sheetData"),
        with_part(SHIPPED, "[Content_Types].xml", b"<x/>"),
        with_part(SHIPPED, "xl/media/bomb.bin", b"\x00" * 15_000_000),
    ],
)
def test_whatever_cannot_be_read_is_one_and_the_same_problem(tmp_path: Path, data: bytes):
    assert reason_of(tmp_path, data)
