"""Renders jobs: template, engine, storage, and the word back to the queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kesin.engine.queue import Queue
from kesin.engine.results import Answer, Done, Failed
from kesin.engine.worker import Worker
from kesin.engine.worker_thread import Share
from kesin.foundation.logs import Logger
from kesin.lifecycle.model import Job
from kesin.workloads.pdf.config import PdfRenderConfig
from kesin.workloads.pdf.engines import pick_engine
from kesin.workloads.pdf.engines.base import Engine, Paper, Rendered
from kesin.workloads.pdf.engines.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.errors import ARTIFACT_WRITE_FAILED, PdfErrorCode, RenderFailed
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStore, UnknownJob, job_of
from kesin.workloads.pdf.security import sanitize_html_variables, validate_template, validate_url
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.base import StorageError
from kesin.workloads.pdf.templating.library import TemplateBook

log = Logger("kesin.pdf")
Engines = Callable[[str | None], Engine]
LANES: Final = 2  # one renders while the other stores and claims: the engine is used in turns


class PdfRenderWorker:
    """Makes PDFs of jobs. One engine of a kind is kept warm and used by one document at a time."""

    def __init__(
        self,
        job_store: PdfJobStore,
        artifact_store: PdfArtifactStore,
        config: PdfRenderConfig,
        *,
        book: TemplateBook | None = None,
        engines: Engines | None = None,
    ) -> None:
        self.job_store = job_store
        self.artifact_store = artifact_store
        self.config = config
        self.book = book or TemplateBook.load()
        self.done = 0
        self._make = engines or _engine_for(config)
        self._engines: dict[str | None, Engine] = {}
        self._making = threading.Lock()

    def process_job(self, job_id: str) -> None:
        """Claim this job, render it and write down what came of it.

        A job that is not waiting (somebody else has it, it ended, it was cancelled) is left alone.
        Raises UnknownJob for an id that is none.
        """
        worker = Worker(
            self.job_store.queue,
            batch_handler=lambda jobs: [self.answer(one) for one in jobs],
            beside=self.job_store.ledger.note,
            name="process_job",
        )
        worker.leases.start()
        try:
            ended = worker.work_on([job_id])
        finally:
            worker.leases.stop()
        if not ended and self.job_store.get_job(job_id) is None:
            raise UnknownJob(job_id)

    def answer(self, job: Job) -> Done | Failed:
        """What became of a claimed job; never raises."""
        try:
            return Done(self._made(job_of(job)))
        except RenderFailed as problem:
            log.warning("not_rendered", job=job.id, code=problem.code)
            return Failed(problem.code, problem.message)
        except Exception as problem:
            log.exception("render_failed", job=job.id)
            return Failed(PdfErrorCode.UNKNOWN, type(problem).__name__)

    def _made(self, job: PdfJob) -> dict[str, Any]:
        rendered = self.rendered(job)
        try:
            key = self.artifact_store.store_pdf(job.job_id, rendered.pdf)
        except StorageError as problem:
            raise RenderFailed(ARTIFACT_WRITE_FAILED, str(problem)) from problem
        self.done += 1
        warnings = list(rendered.warnings)
        asked = job.payload.get("template_hash")
        if asked and asked != self.book.get(job.template_name).content_hash:
            warnings.append("the template was changed after this was asked for")
        return {
            "artifact_key": key,
            "bytes": len(rendered.pdf),
            "engine": rendered.engine,
            "pages": rendered.pages,
            "seconds": round(rendered.seconds, 6),
            "sha256": rendered.sha256,
            "warnings": warnings,
        }

    def rendered(self, job: PdfJob) -> Rendered:
        """The job's PDF; raises RenderFailed."""
        if not self.validate_template(job.template_name):
            raise RenderFailed(
                PdfErrorCode.TEMPLATE_ERROR, "this template is not on the list of allowed ones"
            )
        html = self.book.html(job.template_name, job.payload.get("variables") or {})
        timeout_s = (job.manner or {}).get("timeout") or self.config.hard_timeout
        engine = self._engine(job.payload.get("engine"))
        return engine.render(html, paper_of(job.payload), timeout_s=timeout_s)

    def render_html_to_pdf(self, html: str, timeout: int) -> bytes:
        """A PDF of any HTML on plain paper; raises RenderFailed."""
        return self._engine(None).render(html, Paper(), timeout_s=timeout).pdf

    def validate_template(self, template_name: str) -> bool:
        """Whether this template may be used here."""
        return validate_template(template_name, self.config.template_allowlist)

    def validate_url(self, url: str) -> bool:
        """Whether a document may load this."""
        return validate_url(url, self.config.url_allowlist)

    def sanitize_payload(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The payload with everything escaped, for places that do not escape by themselves."""
        return sanitize_html_variables(payload)

    def close(self) -> None:
        """End the engines."""
        with self._making:
            engines, self._engines = list(self._engines.values()), {}
        for engine in engines:
            engine.close()

    def _engine(self, named: str | None) -> Engine:
        with self._making:
            if named not in self._engines:
                self._engines[named] = self._make(named)
            return self._engines[named]


class PdfWorker(Worker):
    """The claim loop around it, with a heartbeat that tells the API that somebody renders."""

    def __init__(self, queue: Queue, renderer: PdfRenderWorker) -> None:
        super().__init__(
            queue,
            batch_handler=self._handle,
            plan=self._turns,
            beside=renderer.job_store.ledger.note,
            threads=LANES,
        )
        self.renderer = renderer
        self._draining = False
        self.heartbeat = Heartbeat(
            queue.store,
            self.name,
            self._state,
            alive=lambda: self.alive or self._draining,
            now=lambda: queue.stats().now,
        )

    def start(self) -> None:
        """Begin to say that it lives, and to work."""
        self.heartbeat.start()
        super().start()

    def join(self) -> None:
        """Wait out the grace period, give back the rest, end the browser."""
        try:
            super().join()
        finally:
            self.heartbeat.stop()
            self.renderer.close()

    def drain(self) -> int:
        """Work until no job is due."""
        self._draining = True
        self.heartbeat.start()
        try:
            return super().drain()
        finally:
            self._draining = False
            self.heartbeat.stop()
            self.renderer.close()

    def _turns(self) -> Iterator[Share]:
        """A job of each owner who waits, one after the other.

        A claim of one job takes the oldest there is: then whoever asks for a thousand PDFs would
        have them all before anybody else gets one.
        """
        for owner, jobs in sorted(self.queue.stats().tenants.items()):
            if jobs["queued"] and (self.tenants is None or owner in self.tenants):
                yield Share((owner,), 1)

    def _handle(self, jobs: Sequence[Job]) -> list[Answer]:
        return [self.renderer.answer(one) for one in jobs]

    def _state(self) -> dict[str, Any]:
        return {"done": self.renderer.done, "stopping": self.stopping}


def paper_of(payload: Mapping[str, Any]) -> Paper:
    """The paper a payload asks for."""
    told = dict(payload.get("paper") or {})
    if "margin_mm" in told:
        told["margin_mm"] = tuple(told["margin_mm"])
    try:
        return Paper(**told)
    except TypeError:
        raise RenderFailed(PdfErrorCode.TEMPLATE_ERROR, "no such paper") from None


def _engine_for(config: PdfRenderConfig) -> Engines:
    """Engines as they are without settings: whatever this machine has."""
    allowed = None
    if config.url_allowlist:
        patterns = list(config.url_allowlist)

        def allowed(url: str) -> bool:
            return validate_url(url, patterns)

    return lambda named: pick_engine(named, ChromiumSettings(allowed=allowed))
