"""From centimetres to rows: every rule of the workshop, to the hundredth of a millimetre."""

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.lifecycle import HOLD_CODES
from kesin.workloads.optiplan.pipeline.transform import ImportRow, transform_order
from kesin.workloads.optiplan.workshop.rules import default_rules, read_rules, rules_json
from tests.workloads.optiplan.order_bodies import back, part, parts, payload

RULES = default_rules()


def row(order_part: dict[str, Any]) -> ImportRow:
    return transform_order(payload(order_part), RULES)[0][0].rows[0]


def problem(*several: dict[str, Any], **rules: Any) -> OrderProblem:
    changed = read_rules({**rules_json(RULES), **rules})
    with pytest.raises(OrderProblem) as caught:
        transform_order(payload(*several), changed)
    return caught.value


# Sizes


@pytest.mark.parametrize(
    ("cm", "mm"),
    [
        (120.5, "1205.00"),
        (72.2, "722.00"),
        (0.1 + 0.2, "3.00"),
        (60.0005, "600.01"),  # a tie goes up
        (60.0015, "600.02"),
        (60.00049, "600.00"),
        (33.3333, "333.33"),
        (100.29, "1002.90"),  # 1002.9000000000001 in floats
        (1000, "10000.00"),
    ],
)
def test_centimetres_become_millimetres_with_two_decimals(cm: float, mm: str):
    made = row(part(length_cm=cm, width_cm=cm))
    assert (str(made[1]), str(made[2])) == (mm, mm)


# Trims and backs


@pytest.mark.parametrize(
    ("body", "description"),
    [
        (part(), "GOVDE_p1_TRIM_10.00"),
        (part(thickness_mm=18.0), "GOVDE_p1_TRIM_10.00"),
        (part(thickness_mm=8), "GOVDE_p1_TRIM_5.00"),  # a body may be thin
        (back(), "ARKALIK_p1_TRIM_5.00"),
        (back(thickness_mm=3.0), "ARKALIK_p1_TRIM_5.00"),
        (back(id="yan sol", thickness_mm=4), "ARKALIK_yan sol_TRIM_5.00"),
    ],
)
def test_the_description_carries_type_id_and_trim(body: dict[str, Any], description: str):
    assert row(body)[5] == description


def test_a_thickness_without_a_trim_or_an_unknown_back_holds_the_order():
    rejection = problem(part(), part(id="dolap", thickness_mm=16))
    assert (rejection.code, rejection.code in HOLD_CODES) == (OptiCode.TRIM_RULE_MISSING, True)
    assert rejection.details == {"part_id": "dolap", "part_index": 1, "thickness_mm": 16}
    assert "dolap" in rejection.message
    assert "16 mm" in rejection.message
    rejection = problem(back(thickness_mm=16))  # the backs are looked at before the trims
    assert (rejection.code, rejection.code in HOLD_CODES) == (OptiCode.BACKING_THICKNESS_UNKNOWN, True)
    assert "3, 4, 5, 8" in rejection.message
    assert problem(back(thickness_mm=6), backingThicknesses=[6]).code is OptiCode.TRIM_RULE_MISSING


def test_the_first_part_that_is_wrong_decides():
    assert problem(part(edge_up="?"), part(thickness_mm=16)).code is OptiCode.EDGE_MAPPING_UNKNOWN
    assert problem(part(thickness_mm=16), part(edge_up="?")).code is OptiCode.TRIM_RULE_MISSING


# Rules


def test_multiplier_trim_and_grain_go_by_the_rules():
    changes = {"cm_to_mm_multiplier": 25.4, "trimByThickness": {"18.5": 7.125}, "grainMapping": {"1": 2}}
    rules = read_rules({**rules_json(RULES), **changes})
    batch = transform_order(payload(part(length_cm=10, thickness_mm=18.5)), rules)[0][0]
    assert (batch.rows[0][1], batch.rows[0][4]) == (254, 2)
    assert (batch.rows[0][5], batch.trim_mm) == ("GOVDE_p1_TRIM_7.13", Decimal("7.125"))


# Bands


def test_bands_are_millimetres_and_nothing_is_nothing():
    made = row(part(edge_up="040", edge_lo="1mm", edge_sx="Bant Yok", edge_dx=None))
    assert made[6:10] == (Decimal("0.4"), 1, None, None)


def test_an_unknown_band_and_a_grain_that_is_not_mapped_fail():
    for band in ("", "3mm", "1MM", "bant yok", " 1mm"):
        rejection = problem(part(edge_sx=band))
        assert (rejection.code, rejection.code in HOLD_CODES) == (OptiCode.EDGE_MAPPING_UNKNOWN, False)
        assert (rejection.details["edge"], rejection.details["band"]) == ("edge_sx", band)
    rejection = problem(part(grain=3), grainMapping={"0": 0})
    assert (rejection.code, rejection.code in HOLD_CODES) == (OptiCode.INVALID_GRAIN, False)


def test_a_back_never_has_a_band_and_the_loss_is_counted_once_a_part():
    batches, resets = transform_order(
        payload(
            back(edge_up="1mm", edge_lo="2mm"),
            back(edge_dx="no such band"),
            back(edge_up="Bant Yok", edge_lo="", edge_sx=None),
            back(),
            part(edge_up="1mm"),
        ),
        RULES,
    )
    assert resets == 2
    for import_row in batches[0].rows:
        assert import_row[6:10] == (None,) * 4


# Texts


@pytest.mark.parametrize(
    ("texts", "second", "first"),
    [
        ({}, "", ""),
        ({"iidesc": "raf", "desc1": "sol"}, "raf", "sol"),
        ({"delik_kodu": "D5"}, "D5", ""),
        ({"iidesc": "", "delik_kodu": "D5"}, "D5", ""),
        ({"iidesc": "raf", "delik_kodu": "D5"}, "raf", ""),
        ({"delik_kodu": None}, "", ""),
    ],
)
def test_the_drill_code_stands_in_for_an_empty_description(texts: dict[str, Any], second: str, first: str):
    made = row(part(**texts))
    assert made[10:] == (second or None, first or None)


# Batches


def test_type_colour_and_thickness_part_the_batches_first_seen_first():
    made, _ = transform_order(
        payload(
            part(id="1"),
            back(id="2"),
            part(id="3", color="beyaz"),
            part(id="4", thickness_mm=8),
            part(id="5", thickness_mm=18.0, material_code="other"),
            back(id="6", thickness_mm=8.0),
        ),
        RULES,
    )
    batches = [
        (batch.part_type, batch.color, int(batch.thickness_mm), [str(r[5])[6:9] for r in batch.rows]) for batch in made
    ]
    assert [entry[:3] for entry in batches] == [
        ("GOVDE", "Beyaz", 18),
        ("ARKALIK", "Beyaz", 8),
        ("GOVDE", "beyaz", 18),
        ("GOVDE", "Beyaz", 8),
    ]
    assert [len(entry[3]) for entry in batches] == [2, 2, 1, 1]
    assert [import_row[5] for import_row in made[0].rows] == ["GOVDE_1_TRIM_10.00", "GOVDE_5_TRIM_10.00"]


@settings(max_examples=settings.default.max_examples // 3)
@given(st.lists(parts(st.sampled_from(["Beyaz", "Meşe", "mese"])), min_size=1, max_size=12))
def test_no_part_is_lost_doubled_or_put_with_strangers(several: list[dict[str, Any]]):
    order = payload(*several)
    made, _ = transform_order(order, RULES)
    keys = [(batch.part_type, batch.color, batch.thickness_mm) for batch in made]
    assert len(set(keys)) == len(keys)
    wanted = Counter(
        (
            order_part.part_type,
            order_part.color,
            order_part.thickness_mm,
            order_part.material_code,
            order_part.id,
            order_part.quantity,
        )
        for order_part in order.parts
    )
    got = Counter(
        (*key, made_row[0], _id(made_row), made_row[3])
        for key, batch in zip(keys, made, strict=True)
        for made_row in batch.rows
    )
    assert got == wanted


def _id(made: ImportRow) -> str:
    return str(made[5]).partition("_")[2].rpartition("_TRIM_")[0]
