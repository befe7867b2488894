"""Plans tried on the page of a new order, and the plan on the page of an order."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kesin.web.pools import WorkPool
from kesin.workloads.optiplan.api import trial
from kesin.workloads.optiplan.optimizer.__main__ import main
from kesin.workloads.optiplan.pages import new_order
from tests.web.conftest import World
from tests.web.dashboard.workloads.orders_page import get, post
from tests.web.dashboard.workloads.test_optiplan import HEAD, PART
from tests.workloads.optiplan.orders_ready import order_service, planned_order

VARIANTS = {"try/0/on": "1", "try/0/effort": "quick", "try/2/on": "1"}
SLIDING = {"try/2/saw_profile": "sliding saw", "try/2/effort": "quick", "try/2/use_rack": "no"}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan in this process."""

    def run(files: Sequence[Path], folder: Path, seconds: float) -> None:
        assert main(["--out", str(folder), "--time-limit", f"{seconds:g}", *map(str, files)]) == 0

    monkeypatch.setattr(trial, "_run_optimiser", run)


def tried(world: World, number: int, **other: str) -> str:
    sent = {**HEAD, **PART, **VARIANTS, **SLIDING, **other}
    text: str = post(world, f"/new/try/{number}", "ayse", data=sent).text
    return text


def test_the_ticked_variants_ask_for_their_plans(shop):
    page = post(shop, "/new/try", "ayse", data={**HEAD, **PART, **VARIANTS}).text
    assert re.findall(r'hx-post="[^"]+/new/try/(\d)"', page) == ["0", "2"]
    none = post(shop, "/new/try", "ayse", data={**HEAD, **PART}).text
    assert "choose at least one variant" in none
    bad = post(
        shop, "/new/try", "ayse", data={**HEAD, **PART, **VARIANTS, "parts/0/length_cm": "900"}
    )
    assert "Nothing was planned." in bad.text
    assert "is larger than its board" in bad.text


@pytest.mark.usefixtures("quick")
def test_a_variant_is_shown_in_figures_with_its_drawings_folded(shop):
    orders = len(order_service(shop.service).queue.jobs().jobs)
    row = tried(shop, 2)
    assert "sliding saw · quick · no" in row
    assert row.count("<svg") == 1
    assert 'name="chosen" value="2"' in row
    assert "must be one of saw_profiles" in tried(shop, 2, **{"try/2/saw_profile": "laser"})
    assert len(order_service(shop.service).queue.jobs().jobs) == orders


def test_a_chosen_variant_goes_into_the_order(shop):
    sent: dict[str, Any] = {**HEAD, **PART, **SLIDING, "order_id": "T-1", "effort": "thorough"}
    answer = post(shop, "/new", "ayse", data=sent | {"chosen": "2"})
    job_id = re.search(r"made=([^&]+)", answer.headers["location"])
    assert job_id
    job = order_service(shop.service).queue.job(job_id[1])
    chosen = job.payload["order"] if job else {}
    assert (chosen["saw_profile"], chosen["effort"]) == ("sliding saw", "quick")
    assert chosen["use_rack"] is False
    wrong = post(shop, "/new", "ayse", data=sent | {"saw_profile": "laser"})
    assert wrong.status_code == 422
    assert 'href="#e-saw_profile"' in wrong.text


def test_a_variant_waits_for_its_turn_or_is_told_to_try_again(
    shop, monkeypatch: pytest.MonkeyPatch
):
    full = WorkPool("trial", "plans to try", threads=1, waiting=0)
    full._places.acquire()
    monkeypatch.setattr(new_order, "trial_pool", lambda: full)
    row = tried(shop, 0)
    assert "at once" in row
    assert "Try again" in row


def test_an_order_shows_its_plan_parts_and_files(shop):
    job_id = planned_order(shop.service)
    path = f"/dashboard/jobs/{job_id}"
    page = shop.client.get(path, headers=shop.cookie("can")).text
    files = f"/jobs/{job_id}/"
    for name in ("plan.pdf", "labels.pdf", "xml", "ptx", "cut-list.csv", "parts.csv"):
        assert f'href="{files}{name}' in page
        assert shop.client.get(f"{files}{name}", headers=shop.cookie("can")).status_code == 200
    assert page.index('id="plan-title"') < page.index('id="job-story"')
    assert f"{files}plan.svg?board=1" in page
    label = re.search(r'mono nowrap">([0-9A-Z]{10}-1)<', page)
    assert label
    scanned = get(shop, f"/scan/{label[1]}-1")
    assert scanned.status_code == 200
    assert job_id in scanned.text
