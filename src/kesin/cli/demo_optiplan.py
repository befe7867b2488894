"""The tour's stop at the workshop: an order that waits for a person, then goes to the saw.

Everything is real but the saw: the import files, the optimiser, which runs as a program of its own,
the XML, the plan. The saw is the simulator's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kesin.cli.failures import Failure
from kesin.cli.output import print_table, say
from kesin.engine.accounts import Accounts
from kesin.engine.command import Commands
from kesin.engine.queue import Queue
from kesin.engine.worker import Worker
from kesin.foundation.access import system
from kesin.foundation.settings import Settings
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.workloads.optiplan import program
from kesin.workloads.optiplan.advice import advice
from kesin.workloads.optiplan.audit import audit_of
from kesin.workloads.optiplan.drawn_plan import plans_of
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.optiplan.optimizer import figures
from kesin.workloads.optiplan.order_desk import QUEUE, OrderDesk
from kesin.workloads.optiplan.payload import read_payload
from kesin.workloads.optiplan.runner import worker_of
from kesin.workloads.optiplan.saw import Saw
from kesin.workloads.workload import House

TICK_S: Final = 0.1
PATIENCE_S: Final = 60.0
PHONE: Final = "0555 123 45 67"
CUSTOMER: Final = "Demir Mobilya"
_DEMO: Final = system("demo")
_never: Final = threading.Event()


def cut_order(store: Store, folder: Path) -> bool:
    """Tell the story; whether the order was cut."""
    queue = Queue(QUEUE, optiplan_lifecycle(), store)
    commands = Commands({QUEUE: queue}, Accounts(Directory(store)), frozenset({QUEUE}))
    settings = Settings.model_construct(data_dir=folder)  # none of the visitor's own
    desk = OrderDesk(House(settings, commands, queue))
    with _program_ended(desk):
        return _story(desk)


def _story(desk: OrderDesk) -> bool:
    payload = read_payload(_order())
    pieces = sum(part.quantity for part in payload.parts)
    job_id = desk.create(_DEMO, payload).job.id
    say(f"   order {payload.order_id}: {pieces} pieces of a wardrobe, sizes in centimetres")
    worker = worker_of(desk.workshop, desk.queue)
    worker.threads = 1
    _until(desk, worker, job_id, "HOLD")
    held = desk.job(_DEMO, job_id)
    say(f"   {held.state}: {held.error_code}, {held.error_message}")
    say(f"   {advice(held.error_code).act}")
    desk.add_customer(_DEMO, CUSTOMER, PHONE)
    desk.approve(_DEMO, job_id)
    say(f"   {CUSTOMER} is added with this phone, and an operator approves the order")
    _until(desk, worker, job_id, "XML_READY")
    _tell_plan(desk, job_id)
    saw = Saw(desk.workshop.paths().machine_drop_folder)
    taken = 0

    def sawn() -> None:
        nonlocal taken
        taken += saw.pass_once()

    _until(desk, worker, job_id, "DONE", meanwhile=sawn)
    say(f"   the saw took {taken} files from its inbox")
    print_table(
        ("what happened", "", "at"),
        [
            (one.event_type, one.message, one.created_at[11:23])
            for one in audit_of(desk.queue, job_id)
        ],
    )
    return desk.job(_DEMO, job_id).state == "DONE"


def _order() -> dict[str, Any]:
    body: dict[str, Any] = {
        "material_code": "18MM 210*280",
        "part_type": "GOVDE",
        "color": "Açık Meşe",
        "thickness_mm": 18,
        "grain": 1,
    }
    return {
        "order_id": "A-1001",
        "customer_phone": PHONE,
        "customer_snapshot_name": CUSTOMER,
        "parts": [
            {
                **body,
                "id": "side",
                "length_cm": 210,
                "width_cm": 58,
                "quantity": 4,
                "edge_up": "1mm",
            },
            {
                **body,
                "id": "shelf",
                "length_cm": 86.4,
                "width_cm": 55.5,
                "quantity": 10,
                "grain": 0,
            },
            {
                **body,
                "id": "door",
                "length_cm": 206.5,
                "width_cm": 44.7,
                "quantity": 4,
                "edge_dx": "2mm",
            },
            {
                **body,
                "id": "back",
                "part_type": "ARKALIK",
                "material_code": "8MM 210*280",
                "thickness_mm": 8,
                "length_cm": 209,
                "width_cm": 89,
                "quantity": 2,
                "edge_up": "1mm",  # which a back never has: reset, counted and told
            },
        ],
    }


def _tell_plan(desk: OrderDesk, job_id: str) -> None:
    job = desk.job(_DEMO, job_id)
    plans = plans_of(desk.workshop.paths(), job, desk.dossier(job))
    print_table(
        ("the optimiser planned", "pieces", "boards", "at least", "yield %", "cuts"),
        [
            (
                plan.demand.material,
                plan.demand.pieces,
                sums.boards,
                sums.least_boards,
                round(100 * sums.yield_share, 1),
                sums.cuts,
            )
            for plan in plans
            for sums in [figures(plan)]
        ],
    )
    say("   and the checker proved every plan: nothing overlaps, every cut goes edge to edge")


def _until(
    desk: OrderDesk,
    worker: Worker,
    job_id: str,
    state: str,
    *,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Work until the order has got there."""
    until = time.monotonic() + PATIENCE_S
    while True:
        meanwhile()
        worker.drain()
        job = desk.job(_DEMO, job_id)
        if job.state == state:
            return
        if job.state == "FAILED" or time.monotonic() > until:
            raise Failure(f"the order is {job.state}: {job.error_message or 'it took too long'}")
        _never.wait(TICK_S)


@contextmanager
def _program_ended(desk: OrderDesk) -> Iterator[None]:
    """Whoever leaves the tour early leaves no optimiser behind."""
    try:
        yield
    finally:
        program.end_earlier(desk.workshop.run_folder)
