"""Offcuts for tests, and plans that use them."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.workloads.optiplan.pipeline.program import ProgramLaunch
from kesin.workloads.optiplan.stock.offcut import Offcut, offcut_id
from kesin.workloads.optiplan.stock.rack import LIVE, PAST, Rack
from tests.workloads.optiplan.offcut_bodies import BODY
from tests.workloads.optiplan.workbench import InstantProgram, Workbench


def put_offcut(queue: Queue, key: str, **other: Any) -> str:
    """Put an offcut into the rack that fits the parts of test orders; returns its id."""
    times = {"created_at": queue.now(), "changed_at": queue.now()}
    body = {**BODY, "id": offcut_id(key), "made_key": key, **times, **other}
    offcut = Offcut.model_validate(body)
    Rack(queue).add(offcut)
    return offcut.id


def state_of(queue: Queue, offcut: str) -> str:
    """The state of an offcut as it reads."""
    return Rack(queue).get(offcut).state


def plan_with(offcuts: Iterable[str]) -> str:
    """Return an XML of the built-in optimiser that uses these offcuts."""
    layouts = "".join(f'<Layout number="1" times="1" offcut="{each}"/>' for each in offcuts)
    best = f'<Solution name="p001" best="1">{layouts}<Layout number="9" times="1"/></Solution>'
    return f'<Solutions generator="Kesin" batch="x">{best}</Solutions>'


def offcuts_in(text: str) -> list[str]:
    """Return the offcuts that such an XML uses."""
    return re.findall(r'offcut="(\w+)"', text)


def stored_states(queue: Queue) -> dict[str, str]:
    """The state of every offcut, as it is stored."""
    rack = Rack(queue)
    sites = (rack._parts(LIVE), rack._parts(PAST))
    records = [json.loads(entry.value) for site in sites for part in site for entry in part]
    assert len({record["id"] for record in records}) == len(records), "one is in both places"
    return {record["id"]: record["state"] for record in records}


class PlanningProgram(InstantProgram):
    """A program that plans with offcuts: at most so many of those that it is offered."""

    def __init__(self, bench: Workbench, monkeypatch: pytest.MonkeyPatch, *, most: int = 1) -> None:
        super().__init__(bench, monkeypatch)
        self.most = most
        self.offered: list[str] = []  # to the last program
        self.unfree: list[str] = []  # offered to any program, without being free

    def start(self, folder: Path, job_id: str, run: int, trigger: ProgramLaunch, _: float) -> None:
        super().start(folder, job_id, run, trigger, _)
        self.offered = []
        for file in trigger.files:
            settings = json.loads(file.with_suffix(".json").read_text())
            free = [each["id"] for each in settings.get("rack", [])]
            self.unfree += [each for each in free if state_of(self.bench.queue, each) != "FREE"]
            chosen = [each for each in free if each not in self.offered][: self.most]
            self.offered += free
            xml = self.bench.paths.export_folder / file.with_suffix(".xml").name
            if xml.exists():
                xml.write_text(plan_with(chosen))
