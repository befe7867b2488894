"""Plans tried before an order is placed: in figures, limited, and never stored."""

from collections.abc import Sequence
from typing import Any

import pytest

from kesin.web.pools import WorkPool
from kesin.workloads.optiplan.api import trial
from kesin.workloads.optiplan.optimizer.__main__ import main
from kesin.workloads.optiplan.workshop.rules import read_rules, rules_json, save_rules
from tests.web.conftest import error_of
from tests.workloads.optiplan.floor import Floor, any_order
from tests.workloads.optiplan.order_bodies import part
from tests.workloads.optiplan.stock.racks import put_offcut, stored_states

PARTS = [part(material_code="M", length_cm=60, width_cm=45, quantity=9)]


@pytest.fixture
def shop(own_floor: Floor) -> Floor:
    """A floor whose rules have boards of two sizes."""
    sizes = {"material": "M", "thickness_mm": 18, "width_mm": 2100}
    boards = [
        {**sizes, "code": "large", "length_mm": 2800, "price": 100},
        {**sizes, "code": "small", "length_mm": 1400, "price": 56},
    ]
    rules = rules_json(own_floor.workshop.rules()) | {"boards": boards, "effort": "quick"}
    save_rules(own_floor.workshop.rules_file, read_rules(rules))
    return own_floor


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan in this process."""

    def run(command: Sequence[str]) -> None:
        assert main(command[3:]) == 0

    monkeypatch.setattr(trial, "_run", run)


def tried(floor: Floor, **order: Any) -> Any:
    body = any_order(parts=PARTS) | order
    return floor.client.post("/plans/try", json=body, headers=floor.maker)


def test_an_order_is_planned_in_another_process_and_nothing_is_stored(shop: Floor):
    answer = tried(shop, board="small", saw_profile="sliding saw")
    assert answer.status_code == 200, answer.text
    figures = answer.json()
    assert (figures["boards"], figures["cost"], figures["currency"]) == (2, 112, "TRY")
    assert 0 < figures["stages"] <= 3
    assert shop.get("/jobs").json()["jobs"] == []
    assert list(shop.paths.import_folder.iterdir()) == []


@pytest.mark.usefixtures("at_once")
def test_plans_differ_by_board_and_rack_and_reserve_nothing(shop: Floor):
    offcut = put_offcut(shop.queue, "a", material="M", length_mm=1300, width_mm=1300)
    large, rack = (tried(shop, board="large", use_rack=use).json() for use in (False, True))
    assert (large["boards"], large["cost"], large["offcuts_used"]) == (1, 100, 0)
    assert rack["offcuts_used"] == 1
    assert large["offcuts_made"] >= 1
    assert large["largest_offcut"]
    assert stored_states(shop.queue) == {offcut: "FREE"}


def test_a_board_that_the_rules_do_not_have_for_the_order_is_refused_by_name(shop: Floor):
    plate = {"width_mm": 2100, "height_mm": 2800}
    for order, known in (
        ({"board": "huge"}, "(large, small), got 'huge'"),
        ({"board": "large", "parts": [part()]}, "(–), got 'large'"),
        ({"board": "large", "plate_size": plate}, "without a plate_size (–), got 'large'"),
    ):
        for path in ("/plans/try", "/jobs"):
            body = any_order(parts=PARTS) | order
            answer = shop.client.post(path, json=body, headers=shop.maker)
            assert answer.status_code == 422
            [field] = error_of(answer)["details"]["fields"]
            assert field["field"] == "board"
            assert field["message"].endswith(known)


def test_an_order_without_a_board_or_right_to_place_it_is_not_planned(shop: Floor):
    rules = rules_json(shop.workshop.rules())
    del rules["defaultPlateSize"]
    save_rules(shop.workshop.rules_file, read_rules(rules))
    assert error_of(tried(shop, parts=[part()]))["code"] == "E_PLATE_SIZE_MISSING"
    assert shop.client.post("/plans/try", json=any_order(), headers=shop.reader).status_code == 403


def test_a_plan_that_takes_too_long_or_fails_says_why(floor: Floor, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(trial, "TRIAL_S", 0.05)
        assert "no plan was found within 0.05 s" in error_of(tried(floor))["message"]
    monkeypatch.setattr(trial, "build_launch", _failing)
    assert error_of(tried(floor))["message"] == "the optimiser ended with 3: no board"


def _failing(*_: Any, **__: Any) -> Any:
    from kesin.workloads.optiplan.pipeline.program import ProgramLaunch

    return ProgramLaunch(("sh", "-c", "echo no board >&2; exit 3"), ())


def test_too_many_at_once_are_told_to_wait(floor: Floor, monkeypatch: pytest.MonkeyPatch):
    full = WorkPool("trial", "plans to try", threads=1, waiting=0)
    full._places.acquire()
    monkeypatch.setattr(trial, "TRIALS", full)
    answer = tried(floor)
    assert (answer.status_code, error_of(answer)["code"]) == (429, "busy")
    assert "retry-after" in answer.headers
