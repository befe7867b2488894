"""Orders that have come some way, made without a request: for tests of the whole service."""

from __future__ import annotations

import itertools
from typing import Any

from kesin.engine.worker import Worker
from kesin.foundation.permissions import system
from kesin.web.service import Service
from kesin.workloads.optiplan.optimizer import Effort, optimise, read_batch, solution_xml
from kesin.workloads.optiplan.orders.payload import read_payload
from kesin.workloads.optiplan.pipeline.runner import Runner
from kesin.workloads.optiplan.service import OrderDesk
from tests.workloads.optiplan.order_bodies import order

ROOT = system("tests")
KNOWN, UNKNOWN = "0555 123 45 67", "0532 000 00 01"
CUSTOMER = {"name": "Ayşe", "phone": KNOWN}
_numbers = itertools.count(1)


def new_order(**other: Any) -> dict[str, Any]:
    """An order that nobody brought before, of a customer nobody knows."""
    return order(**{"order_id": f"R-{next(_numbers)}", "customer_phone": UNKNOWN, **other})


def desk_of(service: Service) -> OrderDesk:
    return OrderDesk(service.house(service.workloads["optiplan"]))


def held_order(service: Service, **other: Any) -> str:
    """Held, because of its customer."""
    return _brought(desk_of(service), new_order(**other))


def planned_order(service: Service) -> str:
    """Held until an operator approves; import files and the XML are there."""
    desk = desk_of(service)
    desk.add_customer(ROOT, **CUSTOMER)
    job_id = _brought(desk, new_order(customer_phone=KNOWN, opti_mode="C"))
    paths, dossier = desk.workshop.paths(), desk._dossiers.read(job_id)
    for stem in dossier.stems:
        demands = read_batch(paths.import_folder / f"{stem}.xlsx")
        xml = solution_xml([optimise(one, Effort(seconds=5)) for one in demands])
        (paths.export_folder / f"{stem}.xml").write_bytes(xml)
    dossier.xml = [f"{stem}.xml" for stem in dossier.stems]
    desk._dossiers.write(job_id, dossier)
    return job_id


def _brought(desk: OrderDesk, body: dict[str, Any]) -> str:
    job_id = desk.create(ROOT, read_payload(body)).job.id
    Worker(desk.queue, Runner(desk.workshop, desk.queue).__call__, batch=1).drain()
    job = desk.queue.job(job_id)
    assert job is not None
    assert job.state == "HOLD"
    return job_id
