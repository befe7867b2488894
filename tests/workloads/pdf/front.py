"""The app over a service without workers, and a renderer that tests run by hand."""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from kesin.foundation import passwords
from kesin.foundation.encryption import key_ring
from kesin.foundation.settings import Settings
from kesin.store.contract import Store
from kesin.workloads.pdf import services
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStore
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.base import StorageBackend
from kesin.workloads.pdf.storage.local import LocalStorage
from kesin.workloads.pdf.templating.library import TemplateLibrary
from tests.web.conftest import World, opened
from tests.workloads.pdf.press import BOOK, SAMPLE, QuickEngine, Shelf

NO_JOB = "00000000-0000-7000-8000-000000000000"
AT_ONCE = 6
_numbers = itertools.count(1)


_SHELVES: dict[str, Shelf] = {}  # of the open fronts: several are, and not the last closes first
_load, _open = services.load_pdf_templates, services._open_storage_once


@wraps(_load)  # the reference of the public names is written in the same process
def _load_templates(settings: Settings) -> TemplateLibrary:
    return BOOK if services.artifacts_address(settings) in _SHELVES else _load(settings)


def _open_storage(address: str) -> StorageBackend:
    return _SHELVES.get(address) or _open(address)


patch.multiple(services, load_pdf_templates=_load_templates, _open_storage_once=_open_storage).start()


class Front(World):
    """The world, with short words for what happens to PDFs."""

    def __init__(self, store: Store, folder: Path, **settings: Any) -> None:
        self.shelf = Shelf(LocalStorage(folder / "artifacts"))
        super().__init__(store, folder, **settings)
        self.queue = self.service.queues["pdf"]
        self.artifacts = PdfArtifactStore(self.shelf, self.clock)
        self.jobs = PdfJobStore(self.queue, self.artifacts)
        self.engine = QuickEngine()
        self.worker = PdfRenderWorker(
            self.jobs,
            self.artifacts,
            services.render_config(self.settings),
            library=BOOK,
            engines=lambda _: self.engine,
            ring=key_ring(self.settings),
        )
        self.boss = self.key("admin")
        self.beat()

    def owner(self) -> dict[str, str]:
        """Create an API key of a new owner."""
        return self.key("pdf")

    def beat(self, name: str = "one") -> None:
        """Write the heartbeat of a worker."""
        Heartbeat(self.store, name, now=self.queue.now).beat()

    def post(self, who: dict[str, str], body: dict[str, Any] | None = None, **params: Any) -> Any:
        return self.client.post("/pdf/jobs", json=body or order(), headers=who, params=params)

    def submit(self, who: dict[str, str], body: dict[str, Any] | None = None) -> str:
        """Submit a job and return its id."""
        response = self.post(who, body)
        assert response.status_code in {200, 202}, response.text
        return str(response.json()["job_id"])

    def done(self, who: dict[str, str], body: dict[str, Any] | None = None) -> str:
        """Submit and render a job; return its id."""
        job_id = self.submit(who, body)
        self.worker.process_job(job_id)
        return job_id

    def get(self, who: dict[str, str], job_id: str, **headers: str) -> Any:
        return self.client.get(f"/pdf/jobs/{job_id}", headers={**who, **headers})

    def fetch(self, who: dict[str, str], job_id: str, **headers: str) -> Any:
        spelled = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.get(f"/pdf/jobs/{job_id}/download", headers={**who, **spelled})

    def upload(self, who: dict[str, str], data: bytes, media_type: str = "application/pdf") -> Any:
        return self.client.post("/pdf/uploads", content=data, headers={**who, "content-type": media_type})

    def uploaded(self, who: dict[str, str], data: bytes, media_type: str = "application/pdf") -> str:
        """Upload a file and return its id."""
        return str(self.upload(who, data, media_type).json()["upload_id"])

    def cancel(self, who: dict[str, str], job_id: str, **params: str) -> Any:
        return self.client.delete(f"/pdf/jobs/{job_id}", headers=who, params=params)

    def seen(self, job_id: str) -> PdfJob:
        job = self.jobs.get_job(job_id)
        assert job is not None
        return job

    def moves(self, job_id: str) -> list[str]:
        return [event.move for event in self.queue.events(job_id)]

    def burn(self, job_id: str) -> None:
        """Delete the PDF of a job behind its back."""
        assert self.artifacts.delete_pdf(self.seen(job_id).artifact_key or "")

    def name_of(self, who: dict[str, str]) -> str:
        return f"key:{passwords.key_id_of(who['x-api-key'])}"


def order(number: str | None = None, **more: Any) -> dict[str, Any]:
    """Build a request; without a number, a new one."""
    number = number or f"F-{next(_numbers)}"
    return {"template_name": "invoice", "variables": {**SAMPLE, "number": number}, **more}


@contextmanager
def opened_front(kind: str, folder: Path, request: pytest.FixtureRequest, **settings: Any) -> Iterator[Front]:
    with ExitStack() as stack:
        store = opened(kind, folder, request, stack)
        yield stack.enter_context(front_over(store, folder, **settings))


@contextmanager
def front_over(store: Store, folder: Path, **settings: Any) -> Iterator[Front]:
    """Open a front; all share the loaded templates, and its storage can be switched off."""
    front = Front(store, folder, **settings)
    address = services.artifacts_address(front.settings)
    before, _SHELVES[address] = _SHELVES.get(address), front.shelf
    with front.kept():
        yield front
    _SHELVES.pop(address)
    if before is not None:
        _SHELVES[address] = before


def at_once(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run all functions at the same moment; return their results."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def one_new(responses: list[Any]) -> str:
    """Return the id of the job that all responses name; exactly one response created it."""
    assert sorted(response.status_code for response in responses) == [200] * (len(responses) - 1) + [202]
    [job_id] = {response.json()["job_id"] for response in responses}
    return str(job_id)
