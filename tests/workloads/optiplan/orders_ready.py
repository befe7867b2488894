"""Orders in later states, created without a request: for tests of the whole service."""

import itertools
from typing import Any

from kesin.engine.worker import Worker
from kesin.foundation.permissions import system_actor
from kesin.web.service import Service
from kesin.workloads.optiplan.optimizer.input import read_batch
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise
from kesin.workloads.optiplan.optimizer.output.xml import solution_xml
from kesin.workloads.optiplan.orders.payload import read_payload
from kesin.workloads.optiplan.pipeline.runner import Runner
from kesin.workloads.optiplan.service import OrderService
from tests.workloads.optiplan.order_bodies import order

ROOT = system_actor("tests")
KNOWN, UNKNOWN = "0555 123 45 67", "0532 000 00 01"
CUSTOMER = {"name": "Ayşe", "phone": KNOWN}
_numbers = itertools.count(1)


def new_order(**other: Any) -> dict[str, Any]:
    """Build a new order of an unknown customer."""
    return order(**{"order_id": f"R-{next(_numbers)}", "customer_phone": UNKNOWN, **other})


def order_service(service: Service) -> OrderService:
    return OrderService(service.workload_context("optiplan"))


def held_order(service: Service, **other: Any) -> str:
    """Create an order that is held because its customer is unknown."""
    return _create_and_run(order_service(service), new_order(**other))


def planned_order(service: Service) -> str:
    """Create an order that is held for approval, with its import files and its XML."""
    orders = order_service(service)
    orders.add_customer(ROOT, **CUSTOMER)
    job_id = _create_and_run(orders, new_order(customer_phone=KNOWN, opti_mode="C"))
    progress = orders._progress_store.read(job_id)
    progress.xml = write_xml(orders, job_id)
    orders._progress_store.write(job_id, progress)
    return job_id


def write_xml(orders: OrderService, job_id: str) -> list[str]:
    """Optimise a held order by hand, as in mode C; returns the names of the XMLs."""
    paths, stems = orders.workshop.paths(), orders._progress_store.read(job_id).stems
    for stem in stems:
        demands = read_batch(paths.import_folder / f"{stem}.xlsx")
        xml = solution_xml([optimise(demand, Effort(seconds=5)) for demand in demands])
        (paths.export_folder / f"{stem}.xml").write_bytes(xml)
    return [f"{stem}.xml" for stem in stems]


def _create_and_run(orders: OrderService, body: dict[str, Any]) -> str:
    job_id = orders.create_order(ROOT, read_payload(body)).job.id
    Worker(orders.queue, Runner(orders.workshop, orders.queue).__call__, batch=1).drain()
    job = orders.queue.job(job_id)
    assert job is not None
    assert job.state == "HOLD"
    return job_id
