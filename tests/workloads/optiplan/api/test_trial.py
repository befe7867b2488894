"""Plans tried before an order is placed: compared in figures, limited, and never stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kesin.web.pools import WorkPool
from kesin.workloads.optiplan.api import trial
from kesin.workloads.optiplan.workshop.rules import read_rules, rules_json, save_rules
from tests.web.conftest import error_of
from tests.workloads.optiplan.floor import Floor, any_order, two_batches
from tests.workloads.optiplan.order_bodies import part


def tried(floor: Floor, *variants: dict[str, Any], **other: Any) -> Any:
    body = any_order(**other) | {"variants": list(variants)}
    return floor.client.post("/plans/try", json=body, headers=floor.maker)


def priced(floor: Floor) -> None:
    sizes = {"material": "M", "thickness_mm": 18, "width_mm": 2100}
    boards = [
        {**sizes, "code": "large", "length_mm": 2800, "price": 100},
        {**sizes, "code": "small", "length_mm": 1400, "price": 56},
    ]
    rules = rules_json(floor.workshop.rules()) | {"boards": boards}
    save_rules(floor.workshop.rules_file, read_rules(rules))


@pytest.fixture
def shop(own_floor: Floor) -> Floor:
    priced(own_floor)
    return own_floor


def test_variants_are_compared_and_nothing_is_stored(shop: Floor):
    parts = [part(material_code="M", length_cm=60, width_cm=45, quantity=9)]
    answer = tried(
        shop,
        {"effort": "quick", "boards": ["large"]},
        {"saw_profile": "sliding saw", "effort": "quick", "boards": ["small"], "use_rack": False},
        parts=parts,
    )
    assert answer.status_code == 200
    large, small = [row["figures"] for row in answer.json()["tried"]]
    assert (large["boards"], large["cost"], large["currency"]) == (1, 100, "TRY")
    assert (small["boards"], small["cost"]) == (2, 112)
    assert 0 < large["stages"] <= 3
    assert large["cuts"] >= 9
    assert large["largest_offcut"]
    assert [row["variant"]["boards"] for row in answer.json()["tried"]] == [["large"], ["small"]]
    assert shop.get("/jobs").json()["jobs"] == []
    assert list(shop.paths.import_folder.iterdir()) == []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan in this process."""
    from kesin.workloads.optiplan.optimizer.__main__ import main

    def run(files: Sequence[Path], folder: Path, seconds: float) -> None:
        assert main(["--out", str(folder), "--time-limit", f"{seconds:g}", *map(str, files)]) == 0

    monkeypatch.setattr(trial, "_run_optimiser", run)


@pytest.mark.usefixtures("quick")
def test_a_variant_that_cannot_be_planned_says_why_beside_the_others(shop: Floor):
    answer = tried(
        shop,
        {"effort": "quick"},
        {"saw_profile": "laser"},
        {"boards": ["large", "huge"]},
        parts=two_batches(),
    )
    good, unknown, no_board = answer.json()["tried"]
    assert (good["problem"], good["figures"]["boards"]) == (None, 2)
    assert unknown["figures"] is None
    assert "must be one of saw_profiles" in unknown["problem"]
    assert "got huge" in no_board["problem"]


@pytest.mark.parametrize(
    ("variants", "field"),
    [
        (None, "variants"),
        ([], "variants"),
        ([{}] * 5, "variants"),
        ([{"effort": "most"}], "variants[0].effort"),
        ([{"kerf": 3}], "variants[0].kerf"),
        ([{"boards": []}], "variants[0].boards"),
    ],
)
def test_a_bad_request_is_refused_by_field(floor: Floor, variants: Any, field: str):
    body = any_order() | ({} if variants is None else {"variants": variants})
    answer = floor.client.post("/plans/try", json=body, headers=floor.maker)
    assert answer.status_code == 422
    assert [row["field"] for row in error_of(answer)["details"]["fields"]] == [field]


def test_an_order_that_would_be_refused_is_not_tried(floor: Floor):
    answer = tried(floor, {}, parts=[part(length_cm=900)])
    assert answer.status_code == 422
    assert error_of(answer)["details"]["fields"][0]["field"] == "parts[0].length_cm"
    refused = floor.client.post("/plans/try", json=any_order(), headers=floor.reader)
    assert refused.status_code == 403


def test_a_plan_that_takes_too_long_is_given_up(floor: Floor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(trial, "TRIAL_S", 0.05)
    [row] = tried(floor, {}).json()["tried"]
    assert "no plan was found within 0.05 s" in row["problem"]


def test_too_many_at_once_are_told_to_wait(floor: Floor, monkeypatch: pytest.MonkeyPatch):
    full = WorkPool("trial", "plans to try", threads=1, waiting=0)
    full._places.acquire()
    monkeypatch.setattr(trial, "trial_pool", lambda: full)
    answer = tried(floor, {})
    assert (answer.status_code, error_of(answer)["code"]) == (429, "busy")
    assert "retry-after" in answer.headers
