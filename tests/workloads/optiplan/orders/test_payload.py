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


def test_numbers_become_exact():
    only_part = payload(part(length_cm=120.55, thickness_mm=18.0)).parts[0]
    assert (only_part.length_cm, only_part.thickness_mm) == (Decimal("120.55"), Decimal(18))
    assert str(only_part.thickness_mm) == "18"


def test_one_point_zero_is_the_whole_number_one():
    only_part = payload(part(quantity=1.0, grain=2.0)).parts[0]
    assert (only_part.quantity, only_part.grain) == (1, 2)
    assert isinstance(only_part.grain, int)


def test_what_may_be_left_out_is_nothing():
    read = payload()
    assert (read.opti_mode, read.plate_size, read.customer_snapshot_name) == (None, None, None)
    assert read.parts[0].edge_up is None


def test_an_order_without_a_phone_is_let_in():
    assert payload(customer_phone="").customer_phone == ""  # held at the first precheck


@pytest.mark.parametrize("body", [None, [], "x", 5, True])
def test_an_order_is_an_object(body: Any):
    assert "object" in wrong(body)["order"]


def test_every_missing_field_is_named():
    names = ("id", "part_type", "material_code", "length_cm", "width_cm", "quantity", "grain")
    fields = [*(f"parts[0].{name}" for name in (*names, "color", "thickness_mm")), "order_id"]
    assert wrong({"parts": [{}]}) == dict.fromkeys([*fields, "customer_phone"], "is missing")
    assert wrong({**order(), "parts": None}).keys() == {"parts"}
    body = order()
    del body["parts"]
    assert wrong(body) == {"parts": "is missing"}


NUMBERS = ["length_cm", "width_cm", "quantity", "grain", "thickness_mm"]
TEXTS = ["id", "material_code", "color", "edge_up", "iidesc", "desc1"]


@pytest.mark.parametrize("value", [True, "1", None, [1], float("nan"), float("inf")])
def test_only_numbers_are_numbers(value: Any):
    messages = wrong(order(part(**dict.fromkeys(NUMBERS, value))))
    assert all(messages[f"parts[0].{field}"].startswith("must be a") for field in NUMBERS)


@pytest.mark.parametrize("value", [5, True, ["x"], {}])
def test_only_text_is_text(value: Any):
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


def test_a_character_that_is_refused_is_spelled_out():
    problems = wrong(order(part(iidesc="two\nlines", id="nul\x00")))
    assert problems == {
        "parts[0].id": "must be one line of text, without the character '\\x00'",
        "parts[0].iidesc": "must be one line of text, without the character '\\n'",
    }


@pytest.mark.parametrize(
    ("plate", "field"),
    [
        ({"width_mm": 0, "height_mm": 1}, "plate_size.width_mm"),
        ({"width_mm": 2100}, "plate_size.height_mm"),
        ({"width_mm": 2100, "height_mm": 2800, "depth": 1}, "plate_size.depth"),
        ({"width_mm": True, "height_mm": 2800}, "plate_size.width_mm"),
        ("2100*2800", "plate_size"),
    ],
)
def test_a_plate_has_two_sides(plate: Any, field: str):
    assert list(wrong(order(plate_size=plate))) == [field]


@pytest.mark.parametrize("mode", ["D", "a", "", 1, True])
def test_the_mode_is_a_b_or_c(mode: Any):
    assert list(wrong(order(opti_mode=mode))) == ["opti_mode"]


def test_unknown_keys_are_refused_by_name():
    assert wrong(order(part(edgeUp="1mm"), revision=2)) == {
        "parts[0].edgeUp": "is not a known field",
        "revision": "is not a known field",
    }


def test_a_very_long_key_is_reported_shortened():
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


@pytest.mark.parametrize("parts", [None, {}, "x", 5])
def test_the_parts_are_a_list(parts: Any):
    assert "must be a list" in wrong({**order(), "parts": parts})["parts"]


@settings(max_examples=settings.default.max_examples // 2)
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


@pytest.mark.parametrize(
    "same",
    [
        {"thickness_mm": 18.0},
        {"thickness_mm": Decimal("18.00")},
        {"length_cm": 72.20},
        {"quantity": 4.0},
        {"edge_up": None, "delik_kodu": None},
    ],
)
def test_the_hash_does_not_see_how_numbers_and_nothing_are_spelled(same: dict[str, Any]):
    assert payload_hash(payload(part(**same))) == payload_hash(payload(part()))


@pytest.mark.parametrize("other", [{"quantity": 5}, {"color": "beyaz"}, {"edge_up": "1mm"}, {"id": "p2"}])
def test_the_hash_sees_every_difference(other: dict[str, Any]):
    assert payload_hash(payload(part(**other))) != payload_hash(payload(part()))


def test_an_order_that_chooses_nothing_has_the_hash_it_always_had():
    before = "31903df75c94b851ca03cec66105e642507407e0e8aec523a45df6215aa3d18e"
    assert payload_hash(payload()) == before
    chosen = {"effort": "quick", "saw_profile": "beam saw", "use_rack": False}
    assert payload_json(payload(**chosen)).items() >= chosen.items()
    assert len({payload_hash(payload(**{key: chosen[key]})) for key in chosen} | {before}) == 4


def test_the_hash_is_a_sha256():
    assert re.fullmatch("[0-9a-f]{64}", payload_hash(payload()))
    assert payload_hash(payload(part(), part(id="p2"))) != payload_hash(payload(part(id="p2"), part()))


def test_a_mode_that_was_not_asked_for_is_not_filled_in():
    assert "opti_mode" not in payload_json(payload())
