"""A batch file becomes a demand; a fault is reported by file, row and tag."""

import json
import unicodedata

import pytest
import xlsxwriter

from kesin.workloads.optiplan.optimizer.input import read_batch
from kesin.workloads.optiplan.optimizer.model import Band, Board, Rates, SawProfile, Trims, Unplannable, hundredths
from kesin.workloads.optiplan.pipeline.xlsx_template import TAGS
from kesin.workloads.optiplan.workshop.plan_settings import PlanSettings
from kesin.workloads.optiplan.workshop.rules import default_rules, read_rules, rules_json
from kesin.workloads.optiplan.workshop.saw_rules import BoardRules
from tests.workloads.optiplan.optimizer.orders import batch, row
from tests.workloads.optiplan.workbooks import part_of, with_part

RULES = PlanSettings.of(default_rules())
SAW = {"name": "bench", "max_stages": 2, "first_cut": "rip", "kerf_rip_mm": 3, "kerf_cross_mm": 3.5}
BOARDS = [
    {"code": "L", "material": "M18", "thickness_mm": 18, "length_mm": 2800, "width_mm": 2100},
    {"code": "S", "material": "M18", "thickness_mm": 18, "length_mm": 2100, "width_mm": 1400,
     "price": 56.25, "quantity": 3, "supplier": "depo"},
    {"code": "W", "material": "W8", "thickness_mm": 8, "length_mm": 2800, "width_mm": 2100},
]  # fmt: skip
OFFCUT = {"id": "K7", "material": "M18", "length_mm": 600, "width_mm": 900}


def write_overrides(path, **values):
    path.with_suffix(".json").write_text(json.dumps(values), "utf-8")


def test_a_row_is_read_with_all_its_cells_and_a_banded_side_cut_shorter_by_its_band(tmp_path):
    cells = row("yan_1", 720.55, 300, 4, 2, edges=(1, 0.4, None, 2))
    cells[10:] = ["D35", "sağ"]
    (demand,) = read_batch(batch(tmp_path / "b.xlsx", [cells]), RULES)
    (part,) = demand.parts
    assert (part.name, part.quantity, part.grain, part.notes) == ("yan_1", 4, 2, ("D35", "sağ"))
    assert part.finished == (72_055, 30_000)
    assert part.bands == (Band("1 mm", 100), Band("0.4 mm", 40), None, Band("2 mm", 200))
    assert (part.length, part.width) == (hundredths(718.55), hundredths(298.6))


def test_the_board_comes_from_the_rules_and_before_them_from_the_material_and_the_file_beside(tmp_path):
    (demand,) = read_batch(batch(tmp_path / "b.xlsx", [row(trim="5.00"), row("p2", trim="5.00")]), RULES)
    assert (demand.board.length, demand.board.width) == (280_000, 210_000)
    assert demand.board.trims == Trims.of(500)
    assert demand.saw.kerf_cross == 400
    path = batch(tmp_path / "b.xlsx", [row(material="18MM 183*366", grain=None)])
    (demand,) = read_batch(path, RULES)
    assert (demand.board.length, demand.board.width) == (366_000, 183_000)
    write_overrides(path, plate_w_mm=1700, plate_h_mm=2100, trim_mm=3.5, kerf_mm=3.2)
    (demand,) = read_batch(path, RULES)
    assert (demand.board.length, demand.board.width) == (210_000, 170_000)
    assert (demand.board.trims, demand.saw.kerf_rip) == (Trims.of(350), 320)
    assert demand.parts[0].grain == 0


def test_the_saw_comes_from_the_rules_and_its_kerf_from_them_where_it_has_none(tmp_path):
    rules = read_rules({**rules_json(default_rules()), "kerf_mm": 3.2})
    (demand,) = read_batch(batch(tmp_path / "b.xlsx", [row()]), PlanSettings.of(rules))
    saw = demand.saw
    assert (saw.name, saw.max_stages, saw.kerf_rip, saw.kerf_cross) == ("beam saw", 3, 320, 320)
    assert (saw.smallest_strip, saw.largest_cut, saw.book_height) == (4_000, 430_000, 7_500)


def test_without_any_saw_every_number_of_stages_is_allowed(tmp_path):
    path = batch(tmp_path / "b.xlsx", [row()])
    write_overrides(path, plate_w_mm=1700, plate_h_mm=2100, kerf_mm=3)  # of an older version
    (demand,) = read_batch(path)
    assert (demand.saw.stage_limit, demand.saw.kerf_cross) == (0, 300)


def test_all_settings_reach_the_demand(tmp_path):
    path = batch(tmp_path / "b.xlsx", [row(), row("back", material="W8")])
    trims = {"left_mm": 1, "right_mm": 2, "bottom_mm": 3, "top_mm": 4}
    write_overrides(
        path,
        thickness_mm=18,
        saw={**SAW, "trims": trims},
        boards=BOARDS[:2],
        rates={"currency": "EUR", "cut_metre": 0.8, "band_metre": 1.1, "bands": {"2 mm": 2.55}},
        effort="thorough",
        rack=[OFFCUT, {**OFFCUT, "id": "K8", "trim_needed": True}],
    )
    demand, back = read_batch(path, RULES)
    around = Trims(100, 200, 300, 400)
    assert demand.boards == (
        Board(280_000, 210_000, around, "L"),
        Board(210_000, 140_000, around, "S", 5_625, 3, "depo"),
        Board(60_000, 90_000, Trims.of(0), quantity=1, offcut="K7"),
        Board(60_000, 90_000, around, quantity=1, offcut="K8"),
    )
    assert demand.saw == SawProfile("bench", 2, "rip", kerf_rip=300, kerf_cross=350)
    assert demand.rates == Rates("EUR", 80, 110, (("2 mm", 255),))
    assert (demand.thickness, demand.effort) == (1_800, "thorough")
    assert back.boards == (Board(280_000, 210_000, around),)  # the rules' own for a material


def test_a_plate_of_the_file_stands_above_the_boards_of_the_rules(tmp_path):
    path = batch(tmp_path / "b.xlsx", [row()])
    rules = RULES.model_copy(update={"boards": tuple(map(BoardRules.model_validate, BOARDS))})
    assert [board.code for board in read_batch(path, rules)[0].boards] == ["L", "S"]
    write_overrides(path, plate_w_mm=1700, plate_h_mm=2100)
    assert [board.length for board in read_batch(path, rules)[0].boards] == [210_000]


def test_a_trim_given_nowhere_is_that_of_the_thickness(tmp_path):
    cells = row()
    cells[5] = "Yan"
    (demand,) = read_batch(batch(tmp_path / "x_Beyaz_8mm.xlsx", [cells]), RULES)
    assert (demand.board.trims, demand.parts[0].name) == (Trims.of(500), "Yan")


def test_materials_are_planned_apart_in_the_order_they_come_and_empty_rows_passed_over(tmp_path):
    rows = [row("a", material="M2"), row("b", material="M1"), [], row("c", material="M2")]
    demands = read_batch(batch(tmp_path / "b.xlsx", rows), RULES)
    names = [(demand.material, [part.name for part in demand.parts]) for demand in demands]
    assert names == [("M2", ["a", "c"]), ("M1", ["b"])]


def test_what_optiplanning_itself_writes_is_understood(tmp_path):
    cells = ["18MM 210*280", "606", "496,5", 4, "3-Material", None, *["1MM"] * 3, "0.40MM"]
    (demand,) = read_batch(batch(tmp_path / "b.xlsx", [cells]))
    (part,) = demand.parts
    assert (part.name, part.grain, part.finished) == ("row 3", 3, (60_600, 49_650))
    assert (part.bands[0], part.bands[3]) == (Band("1 mm", 100), Band("0.4 mm", 40))


def test_a_sheets_name_may_be_spelt_in_parts(tmp_path):
    book = xlsxwriter.Workbook(str(tmp_path / "b.xlsx"))
    sheet = book.add_worksheet(unicodedata.normalize("NFD", "ŞABLON"))
    for number, cells in enumerate((TAGS, TAGS, row())):
        sheet.write_row(number, 0, ["" if cell is None else cell for cell in cells])
    book.close()
    assert len(read_batch(tmp_path / "b.xlsx", RULES)) == 1


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (row(length="long"), r"b.xlsx, row 3, \[P_LENGTH\] must be a number"),
        (row(width=True), r"row 3, \[P_WIDTH\] must be a number.*True"),
        (row(width=None), r"row 3, \[P_WIDTH\] must be a number"),
        (row(pieces=1.5), r"row 3: \[P_MINQ\] must be a whole number, got 1.5"),
        (row(pieces=0), r"row 3: \[P_MINQ\] must be a whole number"),
        (row(grain=7), r"row 3: \[P_GRAIN\] must be 0, 1, 2 or 3, got 7"),
        (row(length=1e9), "must be a number from 0 to"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path, cells, message):
    with pytest.raises(Unplannable, match=message):
        read_batch(batch(tmp_path / "b.xlsx", [cells]), RULES)


def test_a_changed_tag_a_missing_board_parts_a_sheet_a_workbook_a_file_are_named(tmp_path):
    path = batch(tmp_path / "b.xlsx", [row()], tags=[*TAGS[:7], "[P_EDGE_MAT_LO]", *TAGS[8:]])
    with pytest.raises(Unplannable, match=r"column 8 should be \[P_EGDE_MAT_LO\], is \[P_EDGE_"):
        read_batch(path, RULES)
    with pytest.raises(Unplannable, match=r"plate_w_mm and plate_h_mm into b.json or default"):
        read_batch(batch(tmp_path / "b.xlsx", [row()]))
    with pytest.raises(Unplannable, match="no parts below row 2"):
        read_batch(batch(tmp_path / "b.xlsx", []), RULES)
    book = xlsxwriter.Workbook(str(tmp_path / "c.xlsx"))
    book.add_worksheet("Liste")
    book.close()
    with pytest.raises(Unplannable, match="no sheet ŞABLON; there are Liste"):
        read_batch(tmp_path / "c.xlsx", RULES)
    (tmp_path / "d.xlsx").write_bytes(b"PK\x03\x04 no workbook")
    for name in ("d", "e"):
        with pytest.raises(Unplannable, match=rf"{name}\.xlsx: cannot be read"):
            read_batch(tmp_path / f"{name}.xlsx", RULES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "b.json: cannot be read as JSON"),
        ("[]", "b.json: must contain a JSON object"),
        ('{"plate": 1}', "b.json: plate: is not a known field"),
        ('{"plate_w_mm": 1}', "must be given together"),
        ('{"kerf_mm": true}', "b.json: kerf_mm: must be a number"),
        ('{"saw": {"name": "x", "stages": 3}}', "b.json: saw.stages: is not a known field"),
        ('{"effort": "much"}', "b.json: effort: must be 'quick', 'normal' or 'thorough'"),
        (json.dumps({"rack": [OFFCUT, OFFCUT]}), "the rack lists the offcut K7 twice"),
    ],
)
def test_a_wrong_file_beside_it_is_refused(tmp_path, text, message):
    path = batch(tmp_path / "b.xlsx", [row()])
    path.with_suffix(".json").write_text(text, "utf-8")
    with pytest.raises(Unplannable, match=message):
        read_batch(path, RULES)


def test_a_file_that_reaches_too_far_is_not_opened(tmp_path):
    file = batch(tmp_path / "b.xlsx", [row("yan", 720, 300, 4)])
    good, name = file.read_bytes(), "xl/worksheets/sheet1.xml"
    far_out = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    file.write_bytes(with_part(good, name, part_of(good, name).replace(b"</sheetData>", far_out)))
    with pytest.raises(Unplannable, match="extends to"):
        read_batch(file, RULES)
