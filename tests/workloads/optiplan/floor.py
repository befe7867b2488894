"""The workshop floor: the app over a service without workers, a runner and a saw that tests run.

Orders go by mode C: the test is the operator, and plans with the built-in optimiser in this
process, so nothing is started and nothing waits.
"""

from __future__ import annotations

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
from kesin.workloads.optiplan.optimizer import Effort, optimise, read_batch, solution_xml
from kesin.workloads.optiplan.pipeline.runner import Runner, worker_of
from kesin.workloads.optiplan.pipeline.saw_simulator import Saw
from kesin.workloads.optiplan.service import OrderDesk
from kesin.workloads.optiplan.workshop.config import Workshop
from kesin.workloads.optiplan.workshop.paths import Paths
from tests.web.conftest import ROOT, World, opened
from tests.workloads.optiplan.order_bodies import back, order, part

NO_JOB = "00000000-0000-7000-8000-000000000000"
PHONE = "+905551234567"
DAY = 86_400
_numbers = itertools.count(1)


class Floor(World):
    """The world, with short words for what happens to orders."""

    def __init__(self, store: Store, folder: Path, **settings: Any) -> None:
        super().__init__(store, folder, **settings)
        self.maker = self.key("optiplan")
        self.reader = self.key("read")
        self.operator = self.key("operate")
        self.desk = OrderDesk(self.house)
        self.saw = Saw(self.paths.machine_drop_folder)

    @property
    def queue(self) -> Queue:
        return self.service.queues["optiplan"]

    @property
    def house(self) -> WorkloadContext:
        return self.service.house(self.service.workloads["optiplan"])

    @property
    def workshop(self) -> Workshop:
        return Workshop(self.settings)

    @property
    def paths(self) -> Paths:
        return self.workshop.paths()

    # Doors

    def post(self, body: Any, who: dict[str, str] | None = None) -> Any:
        return self.client.post("/jobs", json=body, headers=who or self.maker)

    def get(self, path: str, who: dict[str, str] | None = None, **params: Any) -> Any:
        return self.client.get(path, params=params, headers=who or self.reader)

    def act(self, job_id: str, what: str, who: dict[str, str] | None = None) -> Any:
        return self.client.post(f"/jobs/{job_id}/{what}", headers=who or self.operator)

    def seen(self, job_id: str) -> dict[str, Any]:
        answer = self.get(f"/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()["job"]
        return told

    def audit_of(self, job_id: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = self.get(f"/jobs/{job_id}").json()["audit"]
        return lines

    def kinds(self, job_id: str) -> list[str]:
        return [line["event_type"] for line in self.audit_of(job_id)]

    def details(self, job_id: str, kind: str) -> dict[str, Any]:
        """Of the last line of this kind."""
        texts = [one["details_json"] for one in self.audit_of(job_id) if one["event_type"] == kind]
        told: dict[str, Any] = json.loads(texts[-1])
        return told

    # Orders in every state

    def new(self, **other: Any) -> str:
        """An order nobody brought before, to be optimised by hand."""
        answer = self.post(any_order(**{"opti_mode": "C", **other}))
        assert answer.status_code == 201, answer.text
        job_id: str = answer.json()["job"]["id"]
        return job_id

    def work(self) -> None:
        """Whatever is due, in this thread."""
        worker = worker_of(self.workshop, self.queue)
        worker.threads = 1
        worker.drain()

    def later(self, seconds: float = 60) -> None:
        self.clock.advance(seconds)
        self.work()

    def sweep(self) -> None:
        Sweeper([self.queue]).sweep(("cap", "recover", "timeout"))

    def unknown(self) -> str:
        """Held: nobody has the phone."""
        job_id = self.new(customer_phone=f"0532 {next(_numbers):07d}")
        self.work()
        assert self.state(job_id) == "HOLD"
        return job_id

    def held(self, *parts: dict[str, Any]) -> str:
        """Held until the operator has optimised it."""
        self.desk.add_customer(ROOT, "Ayşe", PHONE)
        job_id = self.new(parts=list(parts) or [part()])
        self.work()
        assert self.state(job_id) == "HOLD"
        return job_id

    def plan(self, job_id: str) -> list[Path]:
        """Do what OptiPlanning would do; the XMLs."""
        made = []
        for file in sorted(self.paths.import_folder.glob(f"{job_id}_*.xlsx")):
            made.append(self.paths.export_folder / f"{file.stem}.xml")
            made[-1].write_bytes(_planned(file, job_id))
        return made

    def running(self, *parts: dict[str, Any]) -> str:
        """In OPTI_RUNNING; its XML is not there."""
        job_id = self.held(*parts)
        self.act(job_id, "approve")
        self.work()
        assert self.state(job_id) == "OPTI_RUNNING"
        return job_id

    def sent(self, *parts: dict[str, Any]) -> str:
        """In XML_READY; its files lie in the inbox."""
        job_id = self.running(*parts)
        self.plan(job_id)
        self.later()
        self.later()
        assert self.state(job_id) == "XML_READY", self.seen(job_id)
        return job_id

    def done(self, *parts: dict[str, Any]) -> str:
        job_id = self.sent(*parts)
        self.saw.pass_once()
        self.later()
        assert self.state(job_id) == "DONE"
        return job_id

    def timed_out(self) -> str:
        """FAILED with E_OPTI_XML_TIMEOUT."""
        job_id = self.running()
        self.clock.advance(21 * 60)
        self.sweep()
        assert self.state(job_id) == "FAILED"
        return job_id

    def in_hand(self, job_id: str) -> None:
        """A runner takes it and dies with it."""
        [job] = self.queue.claim("a runner", limit=1, ids=[job_id])
        assert job.id == job_id

    def runner(self) -> Runner:
        return Runner(self.workshop, self.queue)

    def inbox(self) -> list[str]:
        return sorted(one.name for one in self.paths.inbox.iterdir() if one.suffix == ".xml")


_plans: dict[bytes, bytes] = {}  # of equal batches, which differ in the job's id alone


def _planned(file: Path, job_id: str) -> bytes:
    batch = file.read_bytes()
    if batch not in _plans:
        plans = [optimise(one, Effort(seconds=5)) for one in read_batch(file)]
        _plans[batch] = solution_xml(plans).replace(job_id.encode(), b"JOB")
    return _plans[batch].replace(b"JOB", job_id.encode())


def any_order(**other: Any) -> dict[str, Any]:
    """An order that nobody made before, of a customer who may be known."""
    return order(**{"order_id": f"S-{next(_numbers)}", "customer_phone": PHONE, **other})


def two_batches() -> list[dict[str, Any]]:
    return [part(), back(id="b1", length_cm=70, width_cm=50, quantity=2, grain=0)]


def somebody(role: str, **may: Any) -> Actor:
    return Actor("user:someone", frozenset({role}), **may)


@contextmanager
def opened_floor(
    kind: str, folder: Path, request: pytest.FixtureRequest, **settings: Any
) -> Iterator[Floor]:
    with ExitStack() as stack:
        floor = Floor(opened(kind, folder, request, stack), folder, **settings)
        stack.enter_context(floor.kept())
        yield floor
