"""Three prechecks in their order; the first failure decides."""

from pathlib import Path
from typing import Any

import pytest

from kesin.workloads.optiplan.customers import Customer
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.lifecycle import HOLD_CODES
from kesin.workloads.optiplan.orders.payload import Payload
from kesin.workloads.optiplan.pipeline.prechecks import find_unmakeable, run_prechecks
from kesin.workloads.optiplan.workshop.paths import Paths, load_paths
from kesin.workloads.optiplan.workshop.rules import Rules, default_rules
from kesin.workloads.optiplan.workshop.saw_rules import SawProfileRules
from tests.tables import table
from tests.workloads.optiplan.order_bodies import board, part, payload
from tests.workloads.optiplan.workbooks import SHIPPED

ALI = Customer("Ali Usta", "+905551234567")
PLATELESS = default_rules().model_copy(update={"default_plate_size": None})


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return load_paths(tmp_path / "paths.json")


def find(phone: str) -> Customer | None:
    return ALI if phone == ALI.phone else None


def code(order: Payload, rules: Rules, paths: Paths) -> OptiCode:
    return problem(order, rules, paths).code


def problem(order: Payload, rules: Rules, paths: Paths) -> OrderProblem:
    with pytest.raises(OrderProblem) as caught:
        run_prechecks(order, rules, paths, find)
    return caught.value


def test_an_order_passes_with_the_template(paths: Paths):
    order = payload(customer_phone="(0555) 123 45 67")
    assert run_prechecks(order, default_rules(), paths, find) == SHIPPED


@pytest.mark.parametrize(
    ("order", "rules"),
    [
        (payload(plate_size={"width_mm": 1830, "height_mm": 3660}), PLATELESS),
        (payload(part(material_code="M")), PLATELESS.model_copy(update={"boards": (board(),)})),
    ],
)
def test_the_orders_plate_or_the_boards_of_its_material_stand_in_for_the_default(
    order: Payload, rules: Rules, paths: Paths
):
    assert run_prechecks(order, rules, paths, find) == SHIPPED


def test_an_unknown_customer_holds_the_order_and_without_a_number_none_is_looked_up(paths: Paths):
    def find_nobody(_: str) -> Customer:
        raise AssertionError

    rejection = problem(payload(customer_phone="0532 000 00 00"), default_rules(), paths)
    assert rejection.code is OptiCode.CRM_NO_MATCH
    assert rejection.details["phone_normalized"] == "+905320000000"
    assert "+905320000000" in rejection.message
    for phone in ("", "  ", "yok", "000"):
        with pytest.raises(OrderProblem) as caught:
            run_prechecks(payload(customer_phone=phone), default_rules(), paths, find_nobody)
        assert caught.value.code is OptiCode.CRM_NO_MATCH
        assert caught.value.details["phone_normalized"] == ""


@pytest.mark.parametrize("template", [None, b"broken"])
def test_the_prechecks_run_in_the_seeds_order_and_each_holds(paths: Paths, template: bytes | None):
    paths.template.unlink() if template is None else paths.template.write_bytes(template)
    stranger = payload(customer_phone="0532 000 00 00")
    codes = [
        code(stranger, PLATELESS, paths),
        code(payload(), PLATELESS, paths),
        code(payload(), default_rules(), paths),
    ]
    assert codes == [OptiCode.CRM_NO_MATCH, OptiCode.PLATE_SIZE_MISSING, OptiCode.TEMPLATE_INVALID]
    assert {*codes} <= {*HOLD_CODES}


def sawn(**saw: Any) -> Rules:
    """Rules with 18 mm boards of 2800 × 2100 mm, 10 mm trims and a saw with these limits."""
    profiles = {"saw": SawProfileRules.model_validate(saw)}
    changes = {"boards": (board(),), "saw_profiles": profiles, "saw_profile": "saw"}
    return default_rules().model_copy(update=changes)


def unmakeable(rules: Rules, *, own_boards: bool = False, **of_part: Any) -> dict[str, str]:
    order = payload(part(**{"material_code": "M", **of_part}))
    problems = find_unmakeable(order, rules, own_boards=own_boards)
    return {problem.field.removeprefix("parts[0]."): problem.message for problem in problems}


WHOLE_LENGTH = {"length_cm": 278, "width_cm": 50}


@table(
    ("saw", "of_part", "fields"),
    [
        ({}, {}, []),
        ({"smallest_piece_mm": 60}, {"width_cm": 6}, []),
        ({"smallest_piece_mm": 60}, {"width_cm": 6, "edge_up": "1mm"}, ["width_cm"]),  # sawn to 59
        ({"smallest_piece_mm": 60}, {"length_cm": 5, "width_cm": 9}, ["length_cm"]),
        ({"largest_cut_mm": 2500}, {}, []),  # cross cuts only
        ({"largest_cut_mm": 2500, "first_cut": "rip"}, {}, ["width_cm"]),
        ({"largest_cut_mm": 2500, "first_cut": "rip", "head_cut": True}, {}, []),
        ({"largest_cut_mm": 2000}, {}, ["width_cm"]),
        ({"largest_rip_mm": 2000}, {}, ["width_cm"]),
        ({"largest_rip_mm": 2500}, {}, []),  # rips only
        ({"largest_rip_mm": 2500, "first_cut": "cross"}, {}, ["width_cm"]),
        ({"largest_cut_mm": 2000}, {"length_cm": 278, "width_cm": 208}, []),  # the whole board
        ({"max_stages": 1}, {}, ["width_cm"]),
        ({"max_stages": 1, "head_cut": True}, {}, []),
        ({"max_stages": 1}, WHOLE_LENGTH, []),
        ({"max_stages": 1, "first_cut": "cross"}, WHOLE_LENGTH, ["width_cm"]),
        ({"max_stages": 2, "smallest_strip_mm": 60}, {"width_cm": 5}, []),  # a strip by its length
        ({"max_stages": 2, "smallest_strip_mm": 60, "first_cut": "rip"}, {"width_cm": 5},
         ["width_cm"]),
        ({"max_stages": 3, "smallest_strip_mm": 60, "first_cut": "rip"}, {"width_cm": 5}, []),
        ({"trims": dict.fromkeys(("left_mm", "right_mm", "bottom_mm", "top_mm"), 0)},
         {"length_cm": 280}, []),
        ({"trims": {"left_mm": 0, "right_mm": 0, "bottom_mm": 500, "top_mm": 500}},
         {"width_cm": 111}, ["width_cm"]),
    ],
)  # fmt: skip
def test_a_part_that_the_saw_cannot_cut_from_any_board_is_refused(
    saw: dict[str, Any], of_part: dict[str, Any], fields: list[str]
):
    assert list(unmakeable(sawn(**saw), **of_part)) == fields


def test_what_the_saw_cannot_cut_is_explained_by_its_limits_unless_another_program_plans():
    assert unmakeable(sawn(largest_cut_mm=2000), own_boards=True) == {}
    assert unmakeable(sawn(largest_cut_mm=2000)) == {
        "width_cm": "the saw saw cannot cut part p1, 722 × 580 mm, from 2800 × 2100 mm within"
        " max_stages 3, first_cut 'any', largest_cut_mm 2000, largest_rip_mm 0,"
        " smallest_strip_mm 0: choose another saw_profile, or another board"
    }


def test_a_part_may_be_cut_from_any_size_in_which_its_material_is_bought():
    small = board(length_mm=700, width_mm=1500)
    rules = sawn().model_copy(update={"boards": (small, board(thickness_mm=8))})
    assert unmakeable(rules, length_cm=60, width_cm=140) == {}
    assert list(unmakeable(rules, length_cm=140, width_cm=60)) == ["length_cm"]
    assert unmakeable(rules, length_cm=140, width_cm=60, grain=0) == {}
    assert unmakeable(rules, length_cm=140, width_cm=60, material_code="18MM 210*280") == {}
