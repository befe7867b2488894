"""Jobs, batches and their webhooks, under a manual clock."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue, apply_changes
from kesin.engine.replay import verify
from kesin.engine.sweeper import Sweeper
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.clock import ManualClock, wall_clock_us
from kesin.foundation.settings import Settings
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import STAGES
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.workloads.pdf.lifecycle import batch_lifecycle, pdf_lifecycle, webhook_lifecycle
from kesin.workloads.pdf.webhooks.worker import Webhooks, WebhookSender
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


class WebhookQueues:
    """The three queues of the workload, and short names for what happens to their jobs."""

    def __init__(self, store: Store, folder: Path, **settings: Any) -> None:
        self.clock = ManualClock(wall_clock_us())  # receivers look at their own
        self.store = store
        self.pdf = self._queue("pdf", pdf_lifecycle())
        self.batches = self._queue("pdf_batches", batch_lifecycle(24))
        self.queue = self._queue("pdf_webhooks", webhook_lifecycle())
        values = {"pdf_webhooks": LIST, "pdf_webhook_secret": MASTER, **settings}
        queues = {queue.name: queue for queue in (self.pdf, self.batches, self.queue)}
        known = {name: Workload(name, pdf_lifecycle, has_sites=False) for name in queues}
        commands = Commands(queues, Accounts(Directory(store), self.clock), known)
        self.context = WorkloadContext(Settings(data_dir=folder, **values), commands, self.queue)
        self.hooks = Webhooks(self.context)

    def _queue(self, name: str, lifecycle: Any) -> Queue:
        return Queue(name, lifecycle, self.store, clock=self.clock, seed=len(name))

    # Jobs and batches

    def new_job(self, owner: str = AYSE) -> str:
        """Create a job."""
        return self.pdf.enqueue({"template": "invoice", "payload": {}}, tenant=owner).id

    def end(self, job_id: str, call: str = "succeed", **how: Any) -> None:
        """End a job or a batch as its worker does."""
        queue = self.pdf if self.pdf.job(job_id) else self.batches
        (job,) = queue.claim("press", ids=[job_id])
        result = json.dumps(MADE) if call in {"succeed", "settle"} else None
        change = Change(job.id, job.claim_seq, result=result, **how)
        assert apply_changes(queue, call, [change], actor="press")[0].result == "moved"

    def sweep(self) -> None:
        """Make all scheduled moves."""
        Sweeper([self.pdf, self.batches, self.queue]).sweep(STAGES)

    # Webhooks

    def subscribe(self, receiver: Receiver, job_id: str | None = None, owner: str = AYSE) -> str:
        """Subscribe to a job; return the id of the delivery."""
        subject = job_id or self.new_job(owner)
        return self.hooks.subscribe("job", subject, owner, receiver.url).id

    def ready(self, receiver: Receiver, owner: str = AYSE) -> str:
        """Subscribe to a job that has its PDF; return the id of the delivery."""
        job_id = self.new_job(owner)
        delivery = self.subscribe(receiver, job_id, owner)
        self.end(job_id)
        return delivery

    def sender(self) -> WebhookSender:
        return WebhookSender(self.context)

    def work(self) -> None:
        """Send until nothing is due."""
        worker = WebhookSender(self.context)
        worker.threads = 1
        worker.drain()

    def seen(self, delivery: str) -> Job:
        job = self.queue.job(delivery)
        assert job is not None
        return job

    def after(self, delivery: str) -> tuple[str, str | None]:
        """Work once; return the state of the delivery and its error."""
        self.work()
        job = self.seen(delivery)
        return job.state, job.error_code


@contextmanager
def opened_queues(kind: str, folder: Path, request: pytest.FixtureRequest, **settings: Any) -> Iterator[WebhookQueues]:
    """Open the queues on this kind of store; their history must replay after the test."""
    with ExitStack() as stack:
        store = opened(kind, folder, request, stack)
        yield WebhookQueues(store, folder, **settings)
        for name in ("pdf", "pdf_batches", "pdf_webhooks"):
            assert [str(difference) for difference in verify(store, name).differences] == []
