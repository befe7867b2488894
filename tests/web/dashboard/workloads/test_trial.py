"""Plans compared on the page of a new order."""

import re
from collections.abc import Sequence
from html import unescape
from typing import Any

import pytest

from kesin.workloads.optiplan.api import trial
from kesin.workloads.optiplan.optimizer.__main__ import main
from tests.web.conftest import World
from tests.web.dashboard.workloads.orders_page import post
from tests.web.dashboard.workloads.test_optiplan import HEAD, PART
from tests.workloads.optiplan.orders_ready import order_service

CHOSEN = {"saw_profile": "sliding saw", "effort": "quick", "use_rack": "no"}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan in this process."""

    def run(command: Sequence[str]) -> None:
        assert main(command[3:]) == 0

    monkeypatch.setattr(trial, "_run", run)


def tried(world: World, **typed: str) -> str:
    answer = post(world, "/new/try", "ayse", data={**HEAD, **PART, **typed})
    assert answer.status_code == 200  # others are not shown in the table
    return str(answer.text)


@pytest.mark.usefixtures("at_once")
def test_a_plan_is_a_line_of_the_comparison_and_can_be_placed(shop: Any):
    orders = order_service(shop.service).queue
    before = len(orders.jobs().jobs)
    line = tried(shop, **CHOSEN, order_id="")
    assert re.search(r'<th scope="row">sliding saw · quick · only new boards</th>', line)
    assert len(orders.jobs().jobs) == before
    place = re.search(r'form="order-form" name="chosen" value="([^"]+)"', line)
    assert place
    later = {**HEAD, **PART, "order_id": "T-1", "effort": "thorough", "board": "x"}
    answer = post(shop, "/new", "ayse", data={**later, "chosen": unescape(place[1]) + "&order_id=T-2"})
    job_id = re.search(r"made=([^&]+)", answer.headers["location"])
    assert job_id
    job = orders.job(job_id[1])
    placed = job.payload["order"] if job else {}
    assert placed.items() >= {"saw_profile": "sliding saw", "effort": "quick", "use_rack": False}.items()
    assert placed["order_id"] == "T-1"  # a line of the table carries choices and nothing else
    assert "board" not in placed


def test_an_order_that_cannot_be_planned_says_why_in_its_line(shop: Any):
    line = tried(shop, **{"parts/0/length_cm": "900"})
    assert "is larger than its board" in line
    assert "chosen" not in line
