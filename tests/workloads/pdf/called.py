"""Those who are sent for over RQ: a workshop in Redis under its own clock, and hands to be killed.

Run as a program, `python -m tests.workloads.pdf.called URL FOLDER`, it is one more of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
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
from kesin.workloads.pdf.lifecycle import Limits, pdf_lifecycle
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.local import LocalStorage
from tests.cli.programs import PATIENCE_S
from tests.workloads.pdf.press import BOOK, QuickEngine, payload

LEASE_S = 1
HELD, HOLDING = "test:held", "test:holding"


class Workshop:
    """Jobs in Redis, artifacts in a folder, and somebody who renders."""

    def __init__(self, url: str, folder: Path, engine: Engine | None = None) -> None:
        self.store = RedisStore(url, own_keys=frozenset({"pdf"}))
        self.queue = Queue("pdf", pdf_lifecycle(Limits(lease_seconds=LEASE_S)), self.store)
        self.folder = folder / "artifacts"
        self.artifacts = PdfArtifactStore(LocalStorage(self.folder))
        self.jobs = PdfJobStore(self.queue, self.artifacts)
        self.engine = QuickEngine()
        config = PdfRenderConfig(template_allowlist=set(BOOK.names))
        engines: Callable[[str | None], Engine] = lambda _: engine or self.engine  # noqa: E731
        self.renderer = PdfRenderWorker(
            self.jobs, self.artifacts, config, book=BOOK, engines=engines
        )

    @property
    def client(self) -> redis.Redis:
        return self.store.client

    def worker(self) -> PdfRqWorker:
        return PdfRqWorker(self.queue, self.renderer)

    def ask(self, number: str = "A-1", **more: Any) -> PdfJob:
        """As the door does it."""
        asked = self.jobs.enqueue(RenderRequest("invoice", {**payload(number), **more}))
        if asked.new:
            enqueue_pdf_job(asked.job.job_id, store=self.store)
        return asked.job

    def ask_together(self, numbers: Sequence[str], together: Barrier) -> list[str]:
        """Ask for each at the same moment as somebody else does; the ids of the jobs."""
        told = []
        for number in numbers:
            together.wait(PATIENCE_S)
            told.append(self.ask(number).job_id)
        return told

    def status(self, job: PdfJob) -> str:
        found = self.jobs.get_job(job.job_id)
        return "" if found is None else found.status.value

    def over(self, *jobs: PdfJob) -> bool:
        """Whether they all have their PDF; meanwhile the sweeper does what it does."""
        sweeper = Sweeper([self.queue], errands={"pdf": lambda: dispatch_waiting(self.queue)})
        sweeper.sweep(("cap", "recover"))
        return all(self.status(one) == "succeeded" for one in jobs)

    def files(self) -> list[Path]:
        return [one for one in self.folder.rglob("*.pdf") if one.is_file()]

    def moves(self, job: PdfJob) -> list[str]:
        return [one.move for one in self.queue.events(job.job_id)]


@contextmanager
def workshop(url: str, folder: Path) -> Iterator[Workshop]:
    """One over an empty Redis; whatever a test does to it, its history replays."""
    shop = Workshop(url, folder)
    try:
        yield shop
        assert [str(one) for one in verify(shop.store, "pdf").differences] == []
    finally:
        shop.store.close()


def ask_apart(
    url: str, folder: Path, numbers: Sequence[str], together: Barrier, pipe: Connection
) -> None:
    """In a process of its own: ask for each, and tell the ids of the jobs."""
    shop = Workshop(url, folder)
    pipe.send(shop.ask_together(numbers, together))
    shop.store.close()


@contextmanager
def hands(url: str, folder: Path, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that render; the block begins when all of them are ready."""
    command = [sys.executable, "-m", "tests.workloads.pdf.called", url, str(folder)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == b"ready\n"
        yield started
    finally:
        for one in started:
            one.kill()
            one.wait()
            if one.stdout is not None:
                one.stdout.close()


class HeldEngine(QuickEngine):
    """Prints at once, but the first document that says HOLD is never done."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__()
        self._client = client

    def render(self, html: str, *given: Any, **how: Any) -> Any:
        if "HOLD" in html and self._client.setnx(HELD, "1"):
            self._client.lpush(HOLDING, os.getpid())
            self._client.blpop(["test:never"], 0)
        return super().render(html, *given, **how)


if __name__ == "__main__":
    where = sys.argv[1]
    bare = redis.Redis.from_url(where)
    mine = Workshop(where, Path(sys.argv[2]), HeldEngine(bare)).worker()
    mine.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    mine._lanes[0].join()
