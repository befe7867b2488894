"""`kesin worker pdf --rq`: RQ would fork for every job, and no warm browser survives a fork."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import redis
from rq import SimpleWorker
from rq.exceptions import DequeueTimeout
from rq.job import Job as RqJob
from rq.queue import Queue as RqQueue
from rq.serializers import JSONSerializer
from rq.suspension import is_suspended
from rq.timeouts import TimerDeathPenalty
from rq.worker import WorkerStatus

from kesin.engine.queue import Queue
from kesin.foundation.ids import is_id
from kesin.foundation.logs import Logger
from kesin.lifecycle.model import Job
from kesin.store.redis.reader import redis_errors_translated
from kesin.workloads.pdf.jobs.dispatch import enqueue_pdf_job
from kesin.workloads.pdf.jobs.rq_queue import RQ_QUEUE_NAME, TASK, connect_redis
from kesin.workloads.pdf.jobs.store import PdfJobStatus
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker, PdfWorker

DEQUEUE_TIMEOUT_S: Final = 1  # how long RQ waits for a message between checks for a stop
FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0
log = Logger("kesin.pdf")


class RenderMessage(RqJob):
    """An RQ job that names a job of ours and nothing else: nothing else in it is executed."""

    render: Callable[[str], object] | None = None
    success_callback = failure_callback = stopped_callback = None

    def _execute(self) -> None:
        args = self.args
        ours = self.func_name == TASK and not self.instance and not self.kwargs
        if not ours or len(args) != 1 or not is_id(args[0]) or self.render is None:
            raise ValueError("the message is not from Kesin")
        self.render(args[0])

    def send_webhooks(self, *_: Any, **__: Any) -> None:
        """Send nothing: webhooks have a queue of their own."""


class PdfRqWorker(PdfWorker):
    """A worker that takes jobs from RQ: each of its threads is an RQ worker of its own."""

    def __init__(self, queue: Queue, renderer: PdfRenderWorker, url: str) -> None:
        super().__init__(queue, renderer)
        self.url = url

    def thread_target(self, number: int) -> Callable[[], None]:
        """Listen to RQ, and reconnect while Redis comes and goes."""
        return lambda: self._listen(number)

    def _listen(self, number: int) -> None:
        pause_s = FIRST_PAUSE_S
        while not self.stopping:
            since = self.queue.clock.monotonic()
            try:
                RqListener(self, number).listen()
            except Exception as problem:  # noqa: BLE001  # the thread survives every error
                recovered = (self.last_success or 0) >= since
                pause_s = FIRST_PAUSE_S if recovered else min(pause_s * 2, MAX_PAUSE_S)
                log.warning("rq_listener_failed", queue=self.queue.name, why=repr(problem)[:200])
                self.pause(pause_s)

    def drain(self) -> int:
        """Render until no message is left; return how many came. Raises StoreUnreachable."""
        self.leases.start()
        try:
            with self.drains(), redis_errors_translated():
                return RqListener(self, 0).listen(burst=True)
        finally:
            self.leases.stop()

    def render(self, job_id: str) -> None:
        """Render a message's job, and dispatch it again if it is due: its message is used up."""
        ended = self.work_on([job_id])
        if ended[PdfJobStatus.QUEUED] or (self.stopping and not ended):
            for job in self.queue.find([job_id]).values():
                if job.state == PdfJobStatus.QUEUED and (job.run_at or 0) <= self.queue.now():
                    enqueue_pdf_job(job_id, store=self.queue.store)

    def release_claims(self, jobs: Sequence[Job]) -> set[str]:
        released = super().release_claims(jobs)
        for job in jobs:
            enqueue_pdf_job(job.id, store=self.queue.store)
        return released


class RqListener(SimpleWorker):
    """The RQ worker of a thread: takes messages and keeps RQ's registries up to date."""

    death_penalty_class = TimerDeathPenalty  # signals reach only the main thread
    job_class = RenderMessage

    def __init__(self, worker: PdfRqWorker, number: int) -> None:
        super().__init__(
            [RQ_QUEUE_NAME],
            name=f"{worker.name}/{number}",
            connection=connect_redis(worker.url),
            serializer=JSONSerializer,
            worker_ttl=60,
            log_job_description=False,
        )
        self._worker = worker

    @property
    def dequeue_timeout(self) -> int:
        """How long to wait for a message; RQ derives its Redis timeouts from it."""
        return DEQUEUE_TIMEOUT_S

    def procline(self, message: str) -> None:
        """Keep the name of the process."""

    def listen(self, *, burst: bool = False) -> int:
        """Render jobs until asked to stop, or in a burst until the queue is empty."""
        taken = 0
        untyped: Any = self  # RQ has no types for these methods
        self.connection.delete(self.key)  # left over if Redis was down when we deregistered
        untyped.register_birth()
        self.set_state(WorkerStatus.IDLE)
        try:
            while not self._worker.stopping:
                self.heartbeat()
                self._worker.last_success = self._worker.queue.clock.monotonic()
                if self.should_run_maintenance_tasks:
                    untyped.clean_registries()
                if is_suspended(self.connection, self):
                    self._worker.pause(DEQUEUE_TIMEOUT_S)
                elif self._process_next(None if burst else self.dequeue_timeout):
                    taken += 1
                elif burst:
                    break
        finally:
            with suppress(redis.RedisError):
                untyped.register_death()
            self.connection.close()
        return taken

    def _process_next(self, wait_s: int | None) -> bool:
        """Render the job of the next message; False if none comes within ``wait_s``."""
        dequeued = None
        with suppress(DequeueTimeout):
            dequeued = RqQueue.dequeue_any(
                self.queues,
                wait_s,
                connection=self.connection,
                job_class=RenderMessage,
                serializer=JSONSerializer,
                death_penalty_class=TimerDeathPenalty,
            )
        if dequeued is None:
            return False
        job, queue = dequeued
        if isinstance(job, RenderMessage):
            job.render = self._worker.render
        self.execute_job(job, queue)
        return True
