"""Jobs, batches and the webhooks that tell of them, under a clock the test moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.engine.sweeper import Sweeper
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import ManualClock, wall_clock_us
from kesin.foundation.settings import Settings
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import STAGES
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.workloads.pdf.batches.lifecycle import batch_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.webhooks.lifecycle import webhook_lifecycle
from kesin.workloads.pdf.webhooks.worker import Webhooks, WebhookSender, build_worker
from tests.web.conftest import opened
from tests.workloads.receiver import Receiver

AYSE, OMER = "key:ayse", "key:omer"
MASTER = "the master of all secrets"
LIST = r"http://127\.0\.0\.1:\d+/hook.* https?://hooks\.example\.com(:\d+)?/.*"
DAY_S = 86_400
MADE = {
    "artifact_key": "pdfs/x/1.pdf", "bytes": 1234, "pages": 2, "sha256": "ab" * 32,
    "engine": "quick", "seconds": 0.2, "warnings": [],
}  # fmt: skip


class PostOffice:
    """A house with the three queues of the workload, and short words for what happens in it."""

    def __init__(self, store: Store, folder: Path, **settings: Any) -> None:
        self.clock = ManualClock(wall_clock_us())  # receivers look at their own
        self.store = store
        self.pdf = self._queue("pdf", pdf_lifecycle())
        self.batches = self._queue("pdf_batches", batch_lifecycle(24))
        self.queue = self._queue("pdf_webhooks", webhook_lifecycle())
        told = {"pdf_webhooks": LIST, "pdf_webhook_secret": MASTER, **settings}
        queues = {one.name: one for one in (self.pdf, self.batches, self.queue)}
        commands = Commands(queues, Accounts(Directory(store), self.clock), frozenset(queues))
        self.context = WorkloadContext(Settings(data_dir=folder, **told), commands, self.queue)
        self.hooks = Webhooks(self.context)

    def _queue(self, name: str, lifecycle: Any) -> Queue:
        return Queue(name, lifecycle, self.store, clock=self.clock, seed=len(name))

    # What is told of

    def asked(self, owner: str = AYSE) -> str:
        """A job that waits."""
        return self.pdf.enqueue({"template": "invoice", "payload": {}}, tenant=owner).id

    def end(self, job_id: str, call: str = "succeed", **how: Any) -> None:
        """A worker's end of a job or a batch."""
        queue = self.pdf if self.pdf.job(job_id) else self.batches
        (job,) = queue.claim("press", ids=[job_id])
        result = json.dumps(MADE) if call in {"succeed", "settle"} else None
        change = Change(job.id, job.claim_seq, result=result, **how)
        assert queue.apply(call, [change], actor="press")[0].result == "moved"

    def sweep(self) -> None:
        """Everything the clock does."""
        Sweeper([self.pdf, self.batches, self.queue]).sweep(STAGES)

    # What is told

    def promised(self, receiver: Receiver, job_id: str | None = None, owner: str = AYSE) -> str:
        """A promise to tell of a job; its id."""
        subject = job_id or self.asked(owner)
        return self.hooks.subscribe("job", subject, owner, receiver.url).id

    def ready(self, receiver: Receiver, owner: str = AYSE) -> str:
        """A promise to tell of a job that has its PDF."""
        job_id = self.asked(owner)
        delivery = self.promised(receiver, job_id, owner)
        self.end(job_id)
        return delivery

    def messenger(self) -> WebhookSender:
        return WebhookSender(self.context)

    def work(self) -> None:
        """What a worker does until nothing is due."""
        worker = build_worker(self.context)
        worker.threads = 1
        worker.drain()

    def seen(self, delivery: str) -> Job:
        job = self.queue.job(delivery)
        assert job is not None
        return job

    def after(self, delivery: str) -> tuple[str, str | None]:
        """Its state after one round of work, and what is wrong with it."""
        self.work()
        job = self.seen(delivery)
        return job.state, job.error_code


@contextmanager
def opened_office(
    kind: str, folder: Path, request: pytest.FixtureRequest, **settings: Any
) -> Iterator[PostOffice]:
    """An office on this kind of store; whatever a test does to it, its history replays."""
    with ExitStack() as stack:
        store = opened(kind, folder, request, stack)
        yield PostOffice(store, folder, **settings)
        for name in ("pdf", "pdf_batches", "pdf_webhooks"):
            assert [str(difference) for difference in verify(store, name).differences] == []
