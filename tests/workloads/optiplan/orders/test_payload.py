"""Order payloads: strict validation and clear messages."""

import json
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.payload import MAX_PARTS, payload_hash, payload_json, read_payload
from tests.tables import table
from tests.workloads.optiplan.order_bodies import order, orders, part, payload


def wrong(body: Any) -> dict[str, str]:
    """The messages, by field."""
    with pytest.raises(OrderProblem) as caught:
        read_payload(body)
    assert caught.value.code is OptiCode.VALIDATION
    assert caught.value.status == 422
    return {problem["field"]: problem["message"] for problem in caught.value.details["fields"]}


def test_numbers_become_exact_and_one_point_zero_is_the_whole_number_one():
    only_part = payload(part(length_cm=120.55, thickness_mm=18.0, quantity=1.0, grain=2.0)).parts[0]
    assert (only_part.length_cm, only_part.thickness_mm) == (Decimal("120.55"), Decimal(18))
    assert str(only_part.thickness_mm) == "18"
    assert (only_part.quantity, only_part.grain) == (1, 2)
    assert isinstance(only_part.grain, int)


def test_what_may_be_left_out_is_nothing():
    read = payload(customer_phone="")  # held at the first precheck
    assert (read.opti_mode, read.plate_size, read.customer_snapshot_name, read.customer_phone) == (None, None, None, "")
    assert read.parts[0].edge_up is None
    assert "opti_mode" not in payload_json(read)


def test_every_missing_field_is_named_and_what_is_no_list_or_object_at_all():
    names = ("id", "part_type", "material_code", "length_cm", "width_cm", "quantity", "grain")
    fields = [*(f"parts[0].{name}" for name in (*names, "color", "thickness_mm")), "order_id"]
    assert wrong({"parts": [{}]}) == dict.fromkeys([*fields, "customer_phone"], "is missing")
    body = order()
    del body["parts"]
    assert wrong(body) == {"parts": "is missing"}
    no_lists: list[Any] = [{}, None, "x", 5]
    no_orders: list[Any] = [[], None, "x", 5, True]
    for no_list in no_lists:
        assert "must be a list" in wrong(order() | {"parts": no_list})["parts"]
    for no_order in no_orders:
        assert "object" in wrong(no_order)["order"]


NUMBERS = ["length_cm", "width_cm", "quantity", "grain", "thickness_mm"]
TEXTS = ["id", "material_code", "color", "edge_up", "iidesc", "desc1"]


def test_only_numbers_are_numbers_and_only_text_is_text():
    no_numbers: list[Any] = [True, "1", None, [1], float("nan"), float("inf")]
    no_texts: list[Any] = [5, True, ["x"], {}]
    for value in no_numbers:
        messages = wrong(order(part(**dict.fromkeys(NUMBERS, value))))
        assert all(messages[f"parts[0].{field}"].startswith("must be a") for field in NUMBERS)
    for value in no_texts:
        messages = wrong(order(part(**dict.fromkeys(TEXTS, value))))
        assert all(messages[f"parts[0].{field}"].startswith("must be text") for field in TEXTS)


@table(
    ("field", "value"),
    [
        ("length_cm", 0),
        ("length_cm", -1),
        ("width_cm", 1000.1),
        ("width_cm", 0.001),
        ("quantity", 0),
        ("quantity", 10_001),
        ("quantity", 1.5),
        ("grain", 4),
        ("grain", -1),
        ("thickness_mm", 0),
        ("thickness_mm", 5000),
        ("part_type", "KAPAK"),
        ("part_type", "govde"),
        ("id", ""),
        ("color", "  "),
        ("color", "x" * 101),
        ("desc1", "x" * 251),
        ("iidesc", "two\nlines"),
        ("id", "nul\x00"),
        ("id", "half \ud800"),
        ("delik_kodu", "\ufffe"),
    ],
)
def test_what_lies_out_of_bounds_is_refused(field: str, value: Any):
    assert list(wrong(order(part(**{field: value})))) == [f"parts[0].{field}"]


def test_a_plate_has_two_sides_and_the_mode_is_a_b_or_c():
    for plate, field in (
        ({"width_mm": 0, "height_mm": 1}, "plate_size.width_mm"),
        ({"width_mm": 2100}, "plate_size.height_mm"),
        ({"width_mm": 2100, "height_mm": 2800, "depth": 1}, "plate_size.depth"),
        ({"width_mm": True, "height_mm": 2800}, "plate_size.width_mm"),
        ("2100*2800", "plate_size"),
    ):
        assert list(wrong(order(plate_size=plate))) == [field]
    for mode in ("D", "a", "", 1, True):
        assert list(wrong(order(opti_mode=mode))) == ["opti_mode"]


def test_a_character_that_is_refused_is_spelled_out():
    problems = wrong(order(part(iidesc="two\nlines", id="nul\x00")))
    assert problems == {
        "parts[0].id": "must be one line of text, without the character '\\x00'",
        "parts[0].iidesc": "must be one line of text, without the character '\\n'",
    }


def test_unknown_keys_are_refused_by_name_and_very_long_ones_shortened():
    assert wrong(order(part(edgeUp="1mm"), revision=2)) == {
        "parts[0].edgeUp": "is not a known field",
        "revision": "is not a known field",
    }
    fields = wrong(order(**{"k" * 10_000: 1, "nul\x00": 2}))
    assert max(map(len, fields)) < 60
    assert "nul" in fields


def test_of_very_many_problems_a_hundred_are_reported():
    with pytest.raises(OrderProblem) as caught:
        read_payload(order(*[part(quantity=0, grain=9)] * 500))
    assert len(caught.value.details["fields"]) == 100
    assert caught.value.message.endswith("and 995 more")


def test_an_order_has_one_to_a_thousand_parts():
    assert len(payload(*[part()] * MAX_PARTS).parts) == MAX_PARTS
    for count in (0, MAX_PARTS + 1, 100_000):
        body = {**order(), "parts": [part()] * count}
        assert wrong(body) == {"parts": f"must have 1…1000 parts, got {count}"}


@settings(max_examples=settings.default.max_examples // 3)
@given(orders, st.randoms(use_true_random=False))
def test_an_order_survives_being_stored_with_its_keys_in_any_order(body: dict[str, Any], random: Any):
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            random.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    read = read_payload(body)
    stored = read_payload(json.loads(json.dumps(payload_json(read))))
    assert stored == read
    for again in (stored, read_payload(shuffled(body))):
        assert payload_hash(again) == payload_hash(read)


def test_the_hash_sees_every_difference_but_not_how_numbers_and_nothing_are_spelled():
    the_hash = payload_hash(payload(part()))
    assert re.fullmatch("[0-9a-f]{64}", the_hash)
    same: list[dict[str, Any]] = [
        {"thickness_mm": 18.0},
        {"thickness_mm": Decimal("18.00")},
        {"length_cm": 72.20},
        {"quantity": 4.0},
        {"edge_up": None, "delik_kodu": None},
    ]
    assert {payload_hash(payload(part(**change))) for change in same} == {the_hash}
    other: list[dict[str, Any]] = [{"quantity": 5}, {"color": "beyaz"}, {"edge_up": "1mm"}, {"id": "p2"}]
    assert len({the_hash, *(payload_hash(payload(part(**change))) for change in other)}) == 5
    assert payload_hash(payload(part(), part(id="p2"))) != payload_hash(payload(part(id="p2"), part()))


def test_an_order_that_chooses_nothing_has_the_hash_it_always_had():
    before = "31903df75c94b851ca03cec66105e642507407e0e8aec523a45df6215aa3d18e"
    assert payload_hash(payload()) == before
    chosen = {"effort": "quick", "saw_profile": "beam saw", "use_rack": False}
    assert payload_json(payload(**chosen)).items() >= chosen.items()
    assert len({payload_hash(payload(**{key: chosen[key]})) for key in chosen} | {before}) == 4
