"""The workshop floor: the app over a service without workers; tests run the runner and the saw.

Orders use mode C: the test is the operator and plans with the built-in optimiser in this process,
so no program is started and nothing waits.
"""

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.engine.sweeper import Sweeper
from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.store.contract import Store
from kesin.workloads.optiplan.optimizer.input import read_batch
from kesin.workloads.optiplan.optimizer.optimise import Effort, optimise
from kesin.workloads.optiplan.optimizer.output.xml import solution_xml
from kesin.workloads.optiplan.pipeline.runner import Runner, build_worker
from kesin.workloads.optiplan.pipeline.saw_simulator import SawSimulator
from kesin.workloads.optiplan.service import OrderService
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import Paths
from tests.web.conftest import ROOT, World, opened
from tests.workloads.optiplan.order_bodies import back, order, part

NO_JOB = "00000000-0000-7000-8000-000000000000"
PHONE = "+905551234567"
DAY = 86_400
_numbers = itertools.count(1)


class Floor(World):
    """The world, with short methods for orders."""

    def __init__(self, store: Store, folder: Path, **settings: Any) -> None:
        super().__init__(store, folder, **settings)
        self.maker = self.key("optiplan")
        self.reader = self.key("read")
        self.operator = self.key("operate")
        self.orders = OrderService(self.context)
        self.saw = SawSimulator(self.paths.machine_drop_folder)

    @property
    def queue(self) -> Queue:
        return self.service.queues["optiplan"]

    @property
    def context(self) -> WorkloadContext:
        return self.service.workload_context("optiplan")

    @property
    def workshop(self) -> Workshop:
        return Workshop(self.settings)

    @property
    def paths(self) -> Paths:
        return self.workshop.paths()

    # Requests

    def post(self, body: Any, who: dict[str, str] | None = None) -> Any:
        return self.client.post("/jobs", json=body, headers=who or self.maker)

    def get(self, path: str, who: dict[str, str] | None = None, **params: Any) -> Any:
        return self.client.get(path, params=params, headers=who or self.operator)

    def act(self, job_id: str, action_name: str, who: dict[str, str] | None = None, **body: Any) -> Any:
        path = f"/jobs/{job_id}/{action_name}"
        return self.client.post(path, headers=who or self.operator, json=body or None)

    def job_body(self, job_id: str) -> dict[str, Any]:
        response = self.get(f"/jobs/{job_id}")
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()["job"]
        return body

    def job_audit(self, job_id: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = self.get(f"/jobs/{job_id}").json()["audit"]
        return lines

    def event_types(self, job_id: str) -> list[str]:
        return [line["event_type"] for line in self.job_audit(job_id)]

    def details(self, job_id: str, event_type: str) -> dict[str, Any]:
        """The details of the last event of this type."""
        texts = [line["details_json"] for line in self.job_audit(job_id) if line["event_type"] == event_type]
        details: dict[str, Any] = json.loads(texts[-1])
        return details

    # Orders in every state

    def new(self, **other: Any) -> str:
        """Create a new order, to be optimised by hand."""
        response = self.post(any_order(**{"opti_mode": "C", **other}))
        assert response.status_code == 201, response.text
        job_id: str = response.json()["job"]["id"]
        return job_id

    def work(self) -> None:
        """Run all due jobs in this thread."""
        worker = build_worker(self.workshop, self.queue)
        worker.threads = 1
        worker.drain()

    def later(self, seconds: float = 60) -> None:
        self.clock.advance(seconds)
        self.work()

    def sweep(self) -> None:
        Sweeper([self.queue]).sweep(("cap", "recover", "timeout"))

    def unknown(self) -> str:
        """Create an order that is held because no customer has the phone."""
        job_id = self.new(customer_phone=f"0532 {next(_numbers):07d}")
        self.work()
        assert self.state(job_id) == "HOLD"
        return job_id

    def held(self, *parts: dict[str, Any]) -> str:
        """Create an order that is held until the operator has optimised it."""
        self.orders.add_customer(ROOT, "Ayşe", PHONE)
        job_id = self.new(parts=list(parts) or [part()])
        self.work()
        assert self.state(job_id) == "HOLD"
        return job_id

    def plan(self, job_id: str) -> list[Path]:
        """Write the XMLs as OptiPlanning would; returns their paths."""
        xmls = []
        for file in sorted(self.paths.import_folder.glob(f"{job_id}_*.xlsx")):
            xmls.append(self.paths.export_folder / f"{file.stem}.xml")
            xmls[-1].write_bytes(_plan_xml(file, job_id))
        return xmls

    def running(self, *parts: dict[str, Any]) -> str:
        """Create an order in OPTI_RUNNING without an XML."""
        job_id = self.held(*parts)
        self.act(job_id, "approve", confirm=True)
        self.work()
        assert self.state(job_id) == "OPTI_RUNNING"
        return job_id

    def sent(self, *parts: dict[str, Any]) -> str:
        """Create an order in XML_READY with its files in the inbox."""
        job_id = self.running(*parts)
        self.plan(job_id)
        self.later()
        self.later()
        assert self.state(job_id) == "XML_READY", self.job_body(job_id)
        return job_id

    def done(self, *parts: dict[str, Any]) -> str:
        job_id = self.sent(*parts)
        self.saw.process_inbox()
        self.later()
        assert self.state(job_id) == "DONE"
        return job_id

    def timed_out(self) -> str:
        """Create an order that is FAILED with E_OPTI_XML_TIMEOUT."""
        job_id = self.running()
        self.clock.advance(21 * 60)
        self.sweep()
        assert self.state(job_id) == "FAILED"
        return job_id

    def claim(self, job_id: str) -> None:
        """Claim the job for a runner that crashes."""
        [job] = self.queue.claim("a runner", limit=1, ids=[job_id])
        assert job.id == job_id

    def runner(self) -> Runner:
        return Runner(self.workshop, self.queue)

    def inbox(self) -> list[str]:
        return sorted(file.name for file in self.paths.inbox.iterdir() if file.suffix == ".xml")


_plans: dict[bytes, bytes] = {}  # by batch; equal batches differ only in the job id


def _plan_xml(file: Path, job_id: str) -> bytes:
    batch = file.read_bytes()
    if batch not in _plans:
        plans = [optimise(demand, Effort(seconds=5)) for demand in read_batch(file)]
        _plans[batch] = solution_xml(plans).replace(job_id.encode(), b"JOB")
    return _plans[batch].replace(b"JOB", job_id.encode())


def any_order(**other: Any) -> dict[str, Any]:
    """Build a new order, of a customer who may be known."""
    return order(**{"order_id": f"S-{next(_numbers)}", "customer_phone": PHONE, **other})


def two_batches() -> list[dict[str, Any]]:
    return [part(), back(id="b1", length_cm=70, width_cm=50, quantity=2, grain=0)]


def actor_with(role: str, **may: Any) -> Actor:
    return Actor("user:someone", frozenset({role}), **may)


@contextmanager
def open_floor(kind: str, folder: Path, request: pytest.FixtureRequest, **settings: Any) -> Iterator[Floor]:
    with ExitStack() as stack:
        floor = Floor(opened(kind, folder, request, stack), folder, **settings)
        stack.enter_context(floor.kept())
        yield floor
