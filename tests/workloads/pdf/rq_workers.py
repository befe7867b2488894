"""RQ workers for tests: jobs in Redis with its own clock, and workers that can be killed."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import redis

from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.engine.sweeper import Sweeper
from kesin.store.redis.store import RedisStore
from kesin.workloads.pdf.config import PdfRenderConfig
from kesin.workloads.pdf.engines.base import Engine
from kesin.workloads.pdf.jobs.dispatch import dispatch_waiting, enqueue_pdf_job
from kesin.workloads.pdf.jobs.rq_worker import PdfRqWorker
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStore, RenderRequest
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.local import LocalStorage
from tests.apart import crew
from tests.cli.programs import PATIENCE_S
from tests.workloads.pdf.press import BOOK, QuickEngine, payload

LEASE_S = 1
HELD, HOLDING = "test:held", "test:holding"


class Workshop:
    """Jobs in Redis, artifacts in a folder, and a renderer."""

    def __init__(self, url: str, folder: Path, engine: Engine | None = None) -> None:
        self.store = RedisStore(url, keys_name_tenant=frozenset({"pdf"}))
        self.queue = Queue("pdf", pdf_lifecycle(lease_seconds=LEASE_S), self.store)
        self.folder = folder / "artifacts"
        self.artifacts = PdfArtifactStore(LocalStorage(self.folder))
        self.jobs = PdfJobStore(self.queue, self.artifacts)
        self.engine = QuickEngine()
        config = PdfRenderConfig(template_allowlist=set(BOOK.names))
        engines: Callable[[str | None], Engine] = lambda _: engine or self.engine  # noqa: E731
        self.renderer = PdfRenderWorker(self.jobs, self.artifacts, config, library=BOOK, engines=engines)

    @property
    def client(self) -> redis.Redis:
        return self.store.client

    def worker(self) -> PdfRqWorker:
        return PdfRqWorker(self.queue, self.renderer, self.store.url)

    def ask(self, number: str = "A-1", **more: Any) -> PdfJob:
        """Submit a job as the route does."""
        enqueued = self.jobs.enqueue(RenderRequest("invoice", {**payload(number), **more}))
        if enqueued.new:
            enqueue_pdf_job(enqueued.job.job_id, store=self.store)
        return enqueued.job

    def ask_together(self, numbers: Sequence[str], together: Barrier) -> list[str]:
        """Request each number at the same moment as another process; return the job ids."""
        job_ids = []
        for number in numbers:
            together.wait(PATIENCE_S)
            job_ids.append(self.ask(number).job_id)
        return job_ids

    def status(self, job: PdfJob) -> str:
        current = self.jobs.get_job(job.job_id)
        return "" if current is None else current.status.value

    def over(self, *jobs: PdfJob) -> bool:
        """Sweep, and return whether all jobs have succeeded."""
        sweeper = Sweeper([self.queue], periodic={"pdf": lambda: dispatch_waiting(self.queue)})
        sweeper.sweep(("cap", "recover"))
        return all(self.status(job) == "succeeded" for job in jobs)

    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*.pdf") if path.is_file()]

    def moves(self, job: PdfJob) -> list[str]:
        return [event.move for event in self.queue.events(job.job_id)]


@contextmanager
def workshop(url: str, folder: Path) -> Iterator[Workshop]:
    """Open a workshop over an empty Redis; its history must replay after the test."""
    shop = Workshop(url, folder)
    try:
        yield shop
        assert [str(difference) for difference in verify(shop.store, "pdf").differences] == []
    finally:
        shop.store.close()


def ask_apart(url: str, pipe: Connection, folder: Path, numbers: Sequence[str], together: Barrier) -> None:
    """Request each number from a separate process, and send the job ids through the pipe."""
    shop = Workshop(url, folder)
    pipe.send(shop.ask_together(numbers, together))
    shop.store.close()


@contextmanager
def worker_processes(url: str, folder: Path, count: int) -> Iterator[None]:
    """Start worker processes; the block begins when all are ready."""
    with crew() as start:
        for process in [start(work_apart, url, folder) for _ in range(count)]:
            assert process.hear() == "ready"
        yield


class HeldEngine(QuickEngine):
    """Returns at once, but never for the first document that contains HOLD."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__()
        self._client = client

    def render(self, html: str, *given: Any, **how: Any) -> Any:
        if "HOLD" in html and self._client.setnx(HELD, "1"):
            self._client.lpush(HOLDING, os.getpid())
            self._client.blpop(["test:never"], 0)
        return super().render(html, *given, **how)


def work_apart(url: str, pipe: Connection, folder: Path) -> None:
    """Work in a process of its own until it is killed."""
    worker = Workshop(url, folder, HeldEngine(redis.Redis.from_url(url))).worker()
    worker.start()
    pipe.send("ready")
    worker._threads[0].join()
