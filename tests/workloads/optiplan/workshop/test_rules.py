"""The workshop's rules: complete, validated, and stored unchanged."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.workshop.rules import (
    default_rules,
    load_rules,
    read_rules,
    rule_warnings,
    rules_json,
    save_rules,
)
from tests.tables import table

SHIPPED = rules_json(default_rules())


def wrong(**other: Any) -> dict[str, str]:
    with pytest.raises(OrderProblem) as caught:
        read_rules({**SHIPPED, **other})
    assert caught.value.code is OptiCode.VALIDATION
    return {problem["field"]: problem["message"] for problem in caught.value.details["fields"]}


SAW = {"saw_profiles", "saw_profile", "effort", "boards", "rates", "rack", "labels"}


def test_the_defaults_are_the_workshops():
    assert {name: value for name, value in SHIPPED.items() if name not in SAW} == {
        "cm_to_mm_multiplier": 10,
        "trimByThickness": {"18": 10, "3": 5, "4": 5, "5": 5, "8": 5},
        "backingThicknesses": [3, 4, 5, 8],
        "edgeMapping": {"Bant Yok": None, "040": 0.4, "1mm": 1, "2mm": 2},
        "grainMapping": {"0": 0, "1": 1, "2": 2, "3": 3},
        "mergePolicy": {"defaultDisabled": True, "requiresOperatorApproval": True},
        "defaultPlateSize": {"width_mm": 2100, "height_mm": 2800},
        "retry_count_max": 3,
        "retry_backoff_minutes": [1, 3, 9],
        "optiModeDefault": None,
        "timeouts": {"optiXmlMinutes": 20, "osiAckMinutes": 5},
        "ackMode": "file_move",
        "kerf_mm": 4,
        "materials": [],
        "language": "en",
    }


def test_the_file_is_made_on_first_start_or_reported_if_it_cannot_be_written(tmp_path: Path):
    file = tmp_path / "data" / "rules.json"
    assert load_rules(file) == default_rules()
    assert json.loads(file.read_text("utf-8")) == SHIPPED
    assert [path.name for path in file.parent.iterdir()] == ["rules.json"]
    with pytest.raises(OrderProblem, match="cannot be written") as caught:
        save_rules(file / "rules.json", default_rules())
    assert caught.value.code is OptiCode.CONFIG_UNAVAILABLE


def test_rules_survive_the_file_and_a_byte_order_mark_of_notepad(tmp_path: Path):
    file = tmp_path / "rules.json"
    rules = read_rules({**SHIPPED, "trimByThickness": {"18.5": 7.25}, "edgeMapping": {"Bant Yok": None, "ş": 0.8}})
    save_rules(file, rules)
    assert load_rules(file) == rules
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load_rules(file) == rules


def test_a_file_without_a_plate_size_means_that_there_is_none(tmp_path: Path):
    body = {key: value for key, value in SHIPPED.items() if key != "defaultPlateSize"}
    save_rules(tmp_path / "rules.json", read_rules(body))
    assert "defaultPlateSize" not in json.loads((tmp_path / "rules.json").read_text("utf-8"))
    assert load_rules(tmp_path / "rules.json").default_plate_size is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b" " * 1_000_001 + b"{}", "cannot be read"),
        (b"[]", "must be an object"),
        (b"{}", "ackMode: is missing"),
        (json.dumps({**SHIPPED, "trimByThicknes": {}}).encode(), "trimByThicknes: is not a known"),
    ],
)
def test_a_file_that_cannot_be_used_is_reported_by_its_name(tmp_path: Path, content: bytes, expected: str):
    file = tmp_path / "rules.json"
    file.write_bytes(content)
    with pytest.raises(OrderProblem) as caught:
        load_rules(file)
    assert caught.value.code is OptiCode.CONFIG_UNAVAILABLE
    assert str(file) in caught.value.message
    assert expected in f"{caught.value.message} {caught.value.details}".replace("', 'message': '", ": ")
    assert file.read_bytes() == content


def test_a_rule_that_is_missing_is_named():
    may_be_missing = {"defaultPlateSize", "optiModeDefault", "kerf_mm", "materials", "language", *SAW}
    for key in SHIPPED.keys() - may_be_missing:
        body = {name: value for name, value in SHIPPED.items() if name != key}
        with pytest.raises(OrderProblem, match=f"{key}: is missing"):
            read_rules(body)


@table(
    ("key", "value", "field"),
    [
        ("cm_to_mm_multiplier", 0, "cm_to_mm_multiplier"),
        ("cm_to_mm_multiplier", True, "cm_to_mm_multiplier"),
        ("trimByThickness", {"18": 0}, "trimByThickness.18"),
        ("trimByThickness", {"18": "10"}, "trimByThickness.18"),
        ("trimByThickness", {"thick": 10}, "trimByThickness"),
        ("trimByThickness", {"18": 10, "18.0": 5}, "trimByThickness"),
        ("trimByThickness", {"NaN": 10}, "trimByThickness"),
        ("backingThicknesses", [3, -4], "backingThicknesses[1]"),
        ("backingThicknesses", [True], "backingThicknesses[0]"),
        ("edgeMapping", {"1mm": 1}, "edgeMapping"),
        ("edgeMapping", {"Bant Yok": 1}, "edgeMapping"),
        ("edgeMapping", {"Bant Yok": None, "1mm": "1"}, "edgeMapping.1mm"),
        ("grainMapping", {"0": 4}, "grainMapping.0"),
        ("retry_count_max", -1, "retry_count_max"),
        ("retry_count_max", 1.5, "retry_count_max"),
        ("retry_backoff_minutes", [], "retry_backoff_minutes"),
        ("retry_backoff_minutes", [0], "retry_backoff_minutes[0]"),
        ("optiModeDefault", "D", "optiModeDefault"),
        ("timeouts", {"optiXmlMinutes": 0, "osiAckMinutes": 5}, "timeouts.optiXmlMinutes"),
        ("timeouts", {"optiXmlMinutes": 20}, "timeouts.osiAckMinutes"),
        ("ackMode", "email", "ackMode"),
        ("mergePolicy", {"defaultDisabled": 1, "requiresOperatorApproval": True},
         "mergePolicy.defaultDisabled"),
        ("defaultPlateSize", {"width_mm": 0, "height_mm": 1}, "defaultPlateSize.width_mm"),
        ("kerf_mm", -1, "kerf_mm"),
    ],
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_named(key: str, value: Any, field: str):
    assert list(wrong(**{key: value})) == [field]


def test_thicknesses_are_numbers_however_they_are_spelled():
    rules = read_rules({**SHIPPED, "trimByThickness": {"18.0": 10, "18.50": 7, "1e1": 5}})
    assert rules.trim_mm(Decimal(18)) == rules.trim_mm(Decimal("18.00")) == 10
    assert rules.trim_mm(Decimal("18.5")) == 7
    assert rules.trim_mm(Decimal(10)) == 5
    assert rules.trim_mm(Decimal(16)) is None


def test_the_mode_is_the_orders_or_the_rules_or_what_is_there():
    cases: list[tuple[Any, Any, bool, str]] = [
        (None, None, True, "A"),
        (None, None, False, "C"),
        (None, "B", True, "B"),
        (None, "C", True, "C"),
        ("C", "A", True, "C"),
        ("A", None, False, "A"),
    ]
    for mode_of_order, ruled, built_in, mode in cases:
        rules = read_rules({**SHIPPED, "optiModeDefault": ruled})
        assert rules.mode(mode_of_order, built_in_optimiser=built_in) == mode


def test_a_file_without_saws_has_the_two_that_are_shipped_and_three_stages():
    rules = read_rules({name: value for name, value in SHIPPED.items() if name not in SAW})
    assert (list(rules.saw_profiles), rules.saw_profile) == (["beam saw", "sliding saw"], "beam saw")
    assert rules.saw_profiles["beam saw"].max_stages == 3


W18 = {"code": "W18", "material": "M18", "thickness_mm": 18, "length_mm": 2800, "width_mm": 2100}
TRIMS = dict.fromkeys(("left_mm", "right_mm", "bottom_mm", "top_mm"), 0)


def test_boards_that_are_hardly_meant_are_warned_about():
    turned = {**W18, "code": "T", "length_mm": 2100, "width_mm": 2800, "price": 90}
    long = {**W18, "code": "L", "length_mm": 5600, "price": 180}
    assert [warning.partition(":")[0] for warning in rule_warnings(read_rules({
        **SHIPPED, "boards": [W18, turned, long]
    }))] == [
        "boards[0] has no price, so prices are ignored for its material", "boards[1]", "boards[2]"
    ]  # fmt: skip


@table(
    ("change", "message"),
    [
        ({"saw_profile": "laser"}, "saw_profile must be one of saw_profiles"),
        ({"saw_profiles": {}}, "saw_profiles"),
        ({"saw_profiles": {"beam saw": {"max_stages": -1}}}, "max_stages"),
        ({"saw_profiles": {"beam saw": {"stages": 3}}}, "stages: is not a known field"),
        ({"saw_profiles": {"beam saw": {"max_stages": 0, "machine_files": ["ptx"]}}}, "PTX files need 1 to 4 stages"),
        (
            {"saw_profiles": {"beam saw": {"max_stages": 0, "head_cut": True}}},
            "head_cut has no effect if max_stages is 0",
        ),
        ({"effort": "extreme"}, "effort"),
        ({"boards": [{"code": "W18"}]}, "material: is missing"),
        ({"boards": [{**W18, "material": "18MM 210*280"}]}, "contains a board size"),
        ({"boards": [W18, W18]}, "boards\\[1\\].code: 'W18' occurs twice"),
        ({"boards": [W18], "materials": ["B18"]}, "boards\\[0\\].material: 'M18' is not in materials"),
        ({"saw_profiles": {"beam saw": {"smallest_strip_mm": 50, "largest_rip_mm": 40}}}, "nothing could be cut"),
        (
            {"saw_profiles": {"beam saw": {"trims": {**TRIMS, "top_mm": 3}}}},
            "saw_profiles.beam saw.trims.top_mm must include the kerf, 4 mm",
        ),
        ({"rates": {"bands": {"3mm": 1}}}, "rates.bands: '3mm' is not a band with a thickness"),
        ({"rates": {"bands": {"Bant Yok": 1}}}, "rates.bands: 'Bant Yok' is not a band"),
        (
            {"edgeMapping": {"Bant Yok": None, "a": 1, "b": 1}, "rates": {"bands": {"a": 1, "b": 2}}},
            "rates.bands: 'b' must have the same price as the other band",
        ),
        ({"rack": {"use": False, "except_materials": ["M18"]}}, "has no effect if use is false"),
        ({"labels": {"margin_left_mm": 1}}, "extend to 211 × 296.5 mm"),
        ({"labels": {"pitch_x_mm": 0}}, "labels.pitch_x_mm"),
    ],
)
def test_a_saw_that_cannot_be_meant_is_refused_by_name(change: dict[str, Any], message: str):
    with pytest.raises(OrderProblem, match=message):
        read_rules({**SHIPPED, **change})
