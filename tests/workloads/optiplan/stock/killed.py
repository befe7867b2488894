"""A runner in a process of its own that stops at a named point, so that it can be killed there."""

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import pytest

from kesin.workloads.optiplan.pipeline import delivery, prechecks, program, program_child, workbook
from kesin.workloads.optiplan.pipeline.program import ProgramLaunch
from kesin.workloads.optiplan.pipeline.runner import Runner
from kesin.workloads.optiplan.pipeline.saw_simulator import SawSimulator
from kesin.workloads.optiplan.stock.rack import Rack
from kesin.workloads.optiplan.stock.settling import settle_orders
from tests.engine.processes import Address
from tests.workloads.optiplan.workbench import POLL_S, Workbench
from tests.workloads.optiplan.workbooks import SHIPPED

POLLS: Final = 8
BOARD: Final = 'material="18MM 210*280" length="2800" width="2100" price="0"'
REST: Final = '<Drop length="650" width="450" reusable="1"/>'  # too small for the part
# In the order of a pass: the call at which the runner stops, and whether before or after it.
POINTS: Final[dict[str, tuple[Any, str, bool]]] = {
    "planned": (Rack, "reserve", True),
    "reserved, not committed": (Rack, "keep_order", False),
    "reserved": (Runner, "_reserve_offcuts", False),
    "checked": (Runner, "_deliver", True),
    "recorded": (delivery, "put_in_inbox", True),
    "delivered": (delivery, "put_in_inbox", False),
    "taken by the saw": (SawSimulator, "process_inbox", False),
    "acknowledged": (Runner, "_finish", True),
    "settled, not committed": (Rack, "drop_order", True),
    "settled": (Runner, "_finish", False),
}


def run_until(address: Address, pipe: Connection, folder: Path, time_us: int, point: str) -> None:
    """Run orders and a saw; sends the time once the point is reached, and waits there to be killed."""
    with pytest.MonkeyPatch.context() as patch, closing(address.open()) as store:
        bench = Workbench(store, folder)
        bench.clock.time_us = time_us
        patch.setattr(program, "_launch", partial(_plan, bench.paths.export_folder))
        patch.setattr(prechecks, "read_template", lambda _: SHIPPED)
        patch.setattr(workbook, "build_batch_xlsx", lambda batch, _: repr(batch).encode())
        if point:
            owner, name, before = POINTS[point]
            patch.setattr(owner, name, _stopping(getattr(owner, name), bench, pipe, before=before))
        worker = bench.new_worker()
        for _ in range(POLLS):
            worker.drain()
            bench.saw.process_inbox()
            settle_orders(bench.orders.context)
            bench.clock.advance(POLL_S)
        pipe.send(None)


def _stopping(call: Callable[..., Any], bench: Workbench, pipe: Connection, *, before: bool) -> Callable[..., Any]:
    def stopping(*args: Any, **kwargs: Any) -> None:
        if not before:
            call(*args, **kwargs)
        pipe.send(bench.clock.time_us)
        pipe.recv()

    return stopping


def _plan(export_folder: Path, status_file: Path, _mark: str, launch: ProgramLaunch, _timeout_s: float) -> int:
    """A program that is done at once: it plans with the first offcut that it is offered."""
    for file in launch.files:
        offered = json.loads(file.with_suffix(".json").read_bytes()).get("rack", [])
        offcut = f'offcut="{offered[0]["id"]}"' if offered else ""
        layout = f'<Layout number="1" times="1" {BOARD} {offcut}>{REST}</Layout>'
        best = f'<Solution name="p001" best="1">{layout}</Solution>'
        text = f'<Solutions generator="Kesin" batch="{file.stem}">{best}</Solutions>'
        (export_folder / file.with_suffix(".xml").name).write_text(text)
    program_child.write_json(status_file, {"exit": 0, "timed_out": False, "log_tail": ""})
    (status_file.parent / program_child.RECORD).unlink()
    return program_child.STARTED
