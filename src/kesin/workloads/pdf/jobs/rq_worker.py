"""`kesin worker pdf --rq`: jobs come over RQ, and the browser stays warm.

RQ's own worker forks for every job, and a browser does not outlive that. This one renders in the
threads of a process that lives on, and does what every worker does with a claim: it renews it,
writes the answer when Redis is back, and gives the job back at a stop.
"""

from __future__ import annotations

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
from kesin.store.redis.reader import reached
from kesin.store.redis.store import RedisStore
from kesin.workloads.pdf.jobs.dispatch import enqueue_pdf_job
from kesin.workloads.pdf.jobs.rq_queue import LINE, TASK, connected
from kesin.workloads.pdf.jobs.store import PdfJobStatus
from kesin.workloads.pdf.jobs.worker import PdfRenderWorker, PdfWorker

TAKE_S: Final = 1  # that RQ waits for a message before it is asked whether to stop
WORKER_TTL_S: Final = 60
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
log = Logger("kesin.pdf")


class Refused(Exception):
    """A message that is none of ours."""


class Message(RqJob):
    """Names a job and nothing else: whatever else a message asks for is not done."""

    render: Callable[[str], object] | None = None
    success_callback = failure_callback = stopped_callback = None

    def _execute(self) -> None:
        args = self.args
        ours = self.func_name == TASK and not self.instance and not self.kwargs
        if not ours or len(args) != 1 or not is_id(args[0]) or self.render is None:
            raise Refused(self.id)
        self.render(args[0])

    def send_webhooks(self, *_: Any, **__: Any) -> None:
        """RQ tells nobody: telling is a queue of our own."""


class PdfRqWorker(PdfWorker):
    """A worker that is sent for: each lane has a place of its own among RQ's workers."""

    def __init__(self, queue: Queue, renderer: PdfRenderWorker) -> None:
        if not isinstance(queue.store, RedisStore):
            raise TypeError("RQ carries jobs that live in Redis")
        super().__init__(queue, renderer)
        self.url = queue.store.url

    def lane(self, number: int) -> Callable[[], None]:
        """Listen to RQ, again and again while Redis comes and goes."""
        return lambda: self._listen(number)

    def _listen(self, number: int) -> None:
        pause_s = FIRST_PAUSE_S
        while not self.stopping:
            since = self.queue.clock.monotonic()
            try:
                Listener(self, number).listen()
            except Exception as problem:  # noqa: BLE001  # a lane outlives whatever they throw
                well = (self.last_success or 0) >= since
                pause_s = FIRST_PAUSE_S if well else min(pause_s * 2, LONGEST_PAUSE_S)
                log.warning("lane_failed", queue=self.queue.name, why=repr(problem)[:200])
                self.pause(pause_s)

    def drain(self) -> int:
        """Render until no message is left; how many came. Raises StoreUnreachable."""
        self._draining = True
        self.heartbeat.start()
        self.leases.start()
        try:
            with reached():
                return Listener(self, 0).listen(burst=True)
        finally:
            self._draining = False
            self.leases.stop()
            self.heartbeat.stop()
            self.renderer.close()

    def heard(self) -> None:
        """Redis answers."""
        self.last_success = self.queue.clock.monotonic()

    def render(self, job_id: str) -> None:
        """Render one that was sent for, and see that nobody waits for a message that is used up."""
        ended = self.work_on([job_id])
        if ended[PdfJobStatus.QUEUED] or (self.stopping and not ended):
            for job in self.queue.find([job_id]).values():
                if job.state == PdfJobStatus.QUEUED and (job.run_at or 0) <= self.queue.now():
                    self._send_for(job_id)

    def give_back(self, jobs: Sequence[Job]) -> set[str]:
        """Let somebody else be sent for."""
        given = super().give_back(jobs)
        for job in jobs:
            self._send_for(job.id)
        return given

    def _send_for(self, job_id: str) -> None:
        enqueue_pdf_job(job_id, store=self.queue.store)


class Listener(SimpleWorker):
    """One lane's place in RQ: it takes messages and keeps RQ's books."""

    death_penalty_class = TimerDeathPenalty  # lanes are threads, and signals are not for them
    job_class = Message

    def __init__(self, worker: PdfRqWorker, number: int) -> None:
        super().__init__(
            [LINE],
            name=f"{worker.name}/{number}",
            connection=connected(worker.url),
            serializer=JSONSerializer,
            worker_ttl=WORKER_TTL_S,
            log_job_description=False,
        )
        self._worker = worker

    @property
    def dequeue_timeout(self) -> int:
        """From it RQ also reckons how long Redis may take."""
        return TAKE_S

    def procline(self, message: str) -> None:
        """The process has a name already."""

    def listen(self, *, burst: bool = False) -> int:
        """Render what is sent until asked to stop, or in a burst until the line is empty."""
        taken = 0
        books: Any = self  # RQ leaves the types of these calls out
        self.connection.delete(self.key)  # our own: Redis died before it heard of our death
        books.register_birth()
        self.set_state(WorkerStatus.IDLE)
        try:
            while not self._worker.stopping:
                self.heartbeat()
                self._worker.heard()
                if self.should_run_maintenance_tasks:
                    books.clean_registries()
                if is_suspended(self.connection, self):
                    self._worker.pause(TAKE_S)
                elif self._take(None if burst else self.dequeue_timeout):
                    taken += 1
                elif burst:
                    break
        finally:
            with suppress(redis.RedisError):
                books.register_death()
            self.connection.close()
        return taken

    def _take(self, wait_s: int | None) -> bool:
        """Render the next in line; False if there is none within so many seconds."""
        try:
            found = RqQueue.dequeue_any(
                self.queues,
                wait_s,
                connection=self.connection,
                job_class=Message,
                serializer=JSONSerializer,
                death_penalty_class=TimerDeathPenalty,
            )
        except DequeueTimeout:
            return False
        if found is None:
            return False
        self.execute_job(*found)
        return True

    def perform_job(self, job: RqJob, queue: RqQueue) -> bool:
        """As RQ does it, with the warm browser."""
        if isinstance(job, Message):
            job.render = self._worker.render
        return super().perform_job(job, queue)
