"""A PDF workload without HTTP: a queue with a manual clock, a local folder and a fake engine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.engine.sweeper import Sweeper
from kesin.foundation.clock import ManualClock
from kesin.foundation.settings import Settings
from kesin.lifecycle.vocabulary import STAGES
from kesin.store.contract import Store
from kesin.workloads.pdf.config import PdfRenderConfig
from kesin.workloads.pdf.engines.base import Paper, RenderedPdf
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStore
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.services import TemplateSource
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.base import StorageBackend, StorageDown
from kesin.workloads.pdf.storage.local import LocalStorage
from kesin.workloads.pdf.templating.library import TemplateLibrary
from tests.web.conftest import opened

BOOK = TemplateLibrary.load()
SAMPLE: dict[str, Any] = BOOK.get("invoice").sample
TTL_S = 24 * 3_600
LEASE_S = 60


class QuickEngine:
    """A fake engine that returns at once, or runs what a test has queued for the next document."""

    name = "quick"

    def __init__(self) -> None:
        self.printed: list[tuple[str, Paper, float]] = []
        self.next: list[Callable[[], object]] = []
        self.missing: tuple[str, ...] = ()
        self.closed = False

    def render(self, html: str, paper: Paper, *, timeout_s: float) -> RenderedPdf:
        self.printed.append((html, paper, timeout_s))
        if self.next:
            self.next.pop(0)()
        pdf = b"%PDF-1.4 " + html.encode()
        return RenderedPdf(pdf, 1, self.name, ("a warning",), 0.2, self.missing)

    def close(self) -> None:
        self.closed = True

    def fails(self, code: str, message: str = "so it was laid out") -> None:
        """Make the next document fail with this error."""

        def fail() -> None:
            raise RenderFailed(code, message)

        self.next.append(fail)


class Shelf:
    """A storage that can be switched off."""

    def __init__(self, storage: StorageBackend) -> None:
        self._storage = storage
        self.down = False

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise StorageDown("switched off by the test")
        return getattr(self._storage, name)


class Press:
    """The queue, storage and worker of the workload, without its routes."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.clock = ManualClock()
        self.store = store
        self.queue = Queue("pdf", pdf_lifecycle(), store, clock=self.clock, seed=1)
        self.shelf = Shelf(LocalStorage(folder / "artifacts"))
        self.artifacts = PdfArtifactStore(self.shelf, self.clock)
        self.jobs = PdfJobStore(self.queue, self.artifacts)
        self.engine = QuickEngine()
        self.config = PdfRenderConfig(template_allowlist=set(BOOK.names))
        self.worker = self.hire()

    def hire(self) -> PdfRenderWorker:
        """Create another worker."""
        return PdfRenderWorker(self.jobs, self.artifacts, self.config, library=BOOK, engines=lambda _: self.engine)

    def ask(self, number: str = "A-1", **how: Any) -> PdfJob:
        return self.jobs.create_job("invoice", payload(number), **how)

    def done(self, number: str = "A-1", **how: Any) -> PdfJob:
        """Return a job that has been rendered."""
        job = self.ask(number, **how)
        self.worker.process_job(job.job_id)
        return self.seen(job)

    def seen(self, job: PdfJob | str) -> PdfJob:
        """Return the current state of a job."""
        current = self.jobs.get_job(job if isinstance(job, str) else job.job_id)
        assert current is not None
        return current

    def sweep(self) -> None:
        """Run all scheduled moves."""
        Sweeper([self.queue]).sweep(STAGES)

    def edges(self, job: PdfJob) -> list[tuple[str, str]]:
        """Return the states that a job has moved between."""
        return [(event.from_state, event.to_state) for event in self.queue.events(job.job_id)]

    def moves(self, job: PdfJob) -> list[str]:
        return [event.move for event in self.queue.events(job.job_id)]


def folder_templates(settings: Settings) -> TemplateSource:
    """The templates of folders alone, in a service where none was ever uploaded."""
    versions: Any = SimpleNamespace(active=dict, read=None, clock=ManualClock())
    return TemplateSource(settings, versions)


def payload(number: str = "A-1") -> dict[str, Any]:
    return {"variables": {**SAMPLE, "number": number}, "engine": None, "paper": {}}


@contextmanager
def opened_press(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Press]:
    """Open a press on this kind of store; its history must replay after the test."""
    with ExitStack() as stack:
        store = opened(kind, folder, request, stack)
        yield Press(store, folder)
        assert [str(difference) for difference in verify(store, "pdf").differences] == []
