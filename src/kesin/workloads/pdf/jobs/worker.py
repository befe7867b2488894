"""Renders jobs: template, engine, storage, and the result back to the queue."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kesin.engine.queue import Queue
from kesin.engine.results import Done, Failed, HandlerResult
from kesin.engine.worker import Worker
from kesin.foundation.encryption import KeyRing
from kesin.foundation.logs import Logger
from kesin.foundation.messages import Message
from kesin.foundation.problems import Unavailable
from kesin.lifecycle.model import Job
from kesin.workloads.pdf import errors
from kesin.workloads.pdf.config import PdfRenderConfig
from kesin.workloads.pdf.engines import pick_engine
from kesin.workloads.pdf.engines.base import (
    UNMARKED_ARCHIVES,
    WEASYPRINT,
    Engine,
    Paper,
    RenderedPdf,
    missing_glyphs_failure,
)
from kesin.workloads.pdf.engines.browser import ChromiumSettings
from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed, TemplateError
from kesin.workloads.pdf.jobs.heartbeat import Heartbeat
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStore, UnknownJob, parse_job
from kesin.workloads.pdf.security import sanitize_html_variables, validate_template, validate_url
from kesin.workloads.pdf.steps.finishing import JobSteps, finish_pdf, parse_steps
from kesin.workloads.pdf.steps.marking import Attachment, mark
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.base import StorageError
from kesin.workloads.pdf.templating.library import TemplateLibrary
from kesin.workloads.pdf.uploads.store import PdfUploads

log = Logger("kesin.pdf")
EngineFactory = Callable[[str | None], Engine]
STUCK_AFTER_S: Final = 120.0  # above a timeout: browsers start twice, a storage may be slow
_ADDED: Final = ("seconds", "warnings", "missing_glyphs")  # of parts
RENDER_THREADS: Final = 2  # one renders while the other stores and claims


class PdfRenderWorker:
    """Renders jobs. One engine of each kind is kept warm and renders one document at a time."""

    def __init__(
        self,
        job_store: PdfJobStore,
        artifact_store: PdfArtifactStore,
        config: PdfRenderConfig,
        *,
        library: TemplateLibrary | Callable[[], TemplateLibrary] | None = None,
        engines: EngineFactory | None = None,
        ring: KeyRing | None = None,
    ) -> None:
        self.job_store = job_store
        self.uploads = PdfUploads(artifact_store.storage, job_store.queue.now)
        self._ring = ring
        self.artifact_store = artifact_store
        self.config = config
        self._library = library or TemplateLibrary.load()
        self.rendered_count = 0
        self._create_engine = engines or _default_engines(config)
        self._engines: dict[str | None, Engine] = {}
        self._engines_lock = threading.Lock()
        self._monotonic = job_store.queue.clock.monotonic
        self._timeouts: dict[str, float] = {}  # in seconds, of the jobs in progress
        self._progress_at = self._monotonic()  # when one last began or ended

    @property
    def library(self) -> TemplateLibrary:
        return self._library() if callable(self._library) else self._library

    @property
    def is_stuck(self) -> bool:
        """Whether jobs are in progress, and none began or ended for longer than one may take."""
        limits = list(self._timeouts.values())
        idle_s = self._monotonic() - self._progress_at
        return bool(limits) and idle_s > max(limits) + STUCK_AFTER_S

    def process_job(self, job_id: str) -> None:
        """Claim, render and record this job, if it waits; raises UnknownJob for an unknown id."""
        queue, record = self.job_store.queue, self.job_store.record
        worker = Worker(queue, batch_handler=self.handle_jobs, in_transaction=record, name="process_job")
        worker.leases.start()
        try:
            ended = worker.work_on([job_id])
        finally:
            worker.leases.stop()
        if not ended and self.job_store.get_job(job_id) is None:
            raise UnknownJob(job_id)

    def handle_jobs(self, jobs: Sequence[Job]) -> list[HandlerResult]:
        return [self.handle_job(job) for job in jobs]

    def handle_job(self, job: Job) -> Done | Failed:
        """Render a claimed job and return its result; never raises."""
        try:
            return Done(self._render_and_store(parse_job(job)))
        except RenderFailed as problem:
            log.warning("not_rendered", job=job.id, code=problem.code)
            failed = Failed(problem.code, self._explain(problem, parse_job(job)))
            failed.traceback = problem.details.get("excerpt", "")  # where in the template
            return failed
        except Exception as problem:
            log.exception("render_failed", job=job.id)
            return Failed(PdfErrorCode.UNKNOWN, type(problem).__name__)
        finally:
            self._timeouts.pop(job.id, None)
            self._progress_at = self._monotonic()

    def _explain(self, problem: RenderFailed, job: PdfJob) -> str:
        """Return the message, with why a newer change of the template was not used."""
        with suppress(RenderFailed, Unavailable):  # the templates cannot be read at all
            rejected = {} if "pinned" in job.payload else self.library.rejected
            newer = rejected.get(job.template_name)
            if newer and problem.code == PdfErrorCode.TEMPLATE_ERROR:
                why = "%(problem)s; a newer change to the template cannot be used: %(why)s"
                return Message(why, problem=problem.message, why=newer.message)
        return problem.message

    def _render_and_store(self, job: PdfJob) -> dict[str, Any]:
        try:
            rendered = self.render(job)
            key = self.artifact_store.store_pdf(job.job_id, rendered.pdf)
        except StorageError as problem:
            raise RenderFailed(errors.ARTIFACT_WRITE_FAILED, str(problem)) from problem
        self.rendered_count += 1
        steps = parse_steps(job.payload.get("then", ()))
        return {
            **{fact: getattr(rendered, fact) for fact in ("engine", "pages", "sha256")},
            "artifact_key": key,
            "bytes": len(rendered.pdf),
            "seconds": round(rendered.seconds, 6),
            "warnings": list(rendered.warnings),
            "missing_glyphs": list(rendered.missing_glyphs),
            "conformance": job.payload.get("conformance", []),
            **({"reproducible": False} if "encrypt" in steps.others else {}),
        }

    def render(self, job: PdfJob) -> RenderedPdf:
        """Render the PDF of a job and perform its steps; raises RenderFailed and StorageError."""
        steps, read = parse_steps(job.payload.get("then", ())), self.uploads.read
        entries = map(dict, job.payload.get("attachments", ()))
        files = [Attachment(data=read(job.owner, each.pop("upload")), **each) for each in entries]
        paper, changed = parse_paper(job.payload), any(steps) or bool(files)
        in_archive = changed and bool(paper.conformance)  # which is checked with them
        if in_archive:
            if self._engine(job.payload.get("engine")).name == WEASYPRINT:
                raise RenderFailed(PdfErrorCode.NOT_CONFORMING, Message(UNMARKED_ARCHIVES))
            paper = replace(paper, finish=partial(mark, steps=steps.others, files=files))
        rendered = self._print(job, job.payload | {"template": job.template_name}, paper)
        finished = in_archive or not changed
        return rendered if finished else self._finish(job, rendered, steps, files)

    def _print(self, job: PdfJob, document: Mapping[str, Any], paper: Paper) -> RenderedPdf:
        """Print a document of a job, of its template or of HTML as it was sent."""
        html_id, template = document.get("html"), document["template"]
        changed: tuple[str, ...] = ()
        if not html_id and not self.validate_template(template):
            raise TemplateError("this template is not in the list of allowed templates")
        timeout_s = (job.metadata or {}).get("timeout") or self.config.hard_timeout
        self._timeouts[job.job_id], self._progress_at = timeout_s, self._monotonic()
        if html_id:
            html = self.uploads.read(job.owner, html_id).decode()
            self.library.inspect_html(html)  # again, as limits may differ here
            paper = replace(paper, own_page=True)
        else:
            variables = self.uploads.insert_pictures(job.owner, document.get("variables") or {})
            library, template = self.library, _requested_template(self.library, document)
            html, now = library.render_html(template, variables), library.get(template).content_hash
            if document.get("template_hash", now) != now:
                changed = ("the template was changed after this PDF was requested",)
        rendered = self._engine(job.payload.get("engine")).render(html, paper, timeout_s=timeout_s)
        if rendered.missing_glyphs and job.payload.get("missing_glyphs") == "fail":
            raise missing_glyphs_failure(rendered.missing_glyphs)
        return replace(rendered, warnings=(*rendered.warnings, *changed))

    def _finish(self, job: PdfJob, rendered: RenderedPdf, steps: JobSteps, files: Sequence[Attachment]) -> RenderedPdf:
        """Perform the steps of a printed PDF, and embed files."""
        how = dict(steps.others)
        if "encrypt" in how:
            how["passwords"] = self.job_store.open_passwords(job.job_id, self._ring)
        title = (job.metadata or {}).get("title", "")
        if "html" not in job.payload:
            title = self._title(job.payload | {"template": job.template_name})
        parts = [(rendered.pdf, title)]
        for part in [*steps.after, *reversed(steps.before)]:
            at = len(parts) if len(parts) <= len(steps.after) else 0
            if "upload" in part:
                parts.insert(at, (self.uploads.read(job.owner, part["upload"]), ""))
                continue
            paper = replace(parse_paper(job.payload), page_ranges="")
            printed = self._print(job, part, paper)
            parts.insert(at, (printed.pdf, self._title(part)))
            noted = {fact: getattr(rendered, fact) + getattr(printed, fact) for fact in _ADDED}
            rendered = replace(rendered, **noted)
        pdf, pages = finish_pdf(parts, len(steps.before), files, **how)
        return replace(rendered, pdf=pdf, pages=pages)

    def _title(self, document: Mapping[str, Any]) -> str:
        return self.library.get(_requested_template(self.library, document)).title

    def render_html_to_pdf(self, html: str, timeout: int) -> bytes:
        """Render any HTML on default paper; raises RenderFailed."""
        self.library.pictures.check(html)
        return self._engine(None).render(html, Paper(), timeout_s=timeout).pdf

    def validate_template(self, template_name: str) -> bool:
        allowed = self.config.template_allowlist | self.library.active.keys()
        return validate_template(template_name, allowed)

    def validate_url(self, url: str) -> bool:
        return validate_url(url, self.config.url_allowlist)

    def sanitize_payload(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload with all text escaped, for output that does not escape by itself."""
        return sanitize_html_variables(payload)

    def close(self) -> None:
        with self._engines_lock:
            engines, self._engines = list(self._engines.values()), {}
        for engine in engines:
            engine.close()

    def _engine(self, name: str | None) -> Engine:
        with self._engines_lock:
            if name not in self._engines:
                self._engines[name] = self._create_engine(name)
            return self._engines[name]


class PdfWorker(Worker):
    """The claim loop around the renderer, with a heartbeat that shows the API a live worker."""

    def __init__(self, queue: Queue, renderer: PdfRenderWorker) -> None:
        super().__init__(
            queue,
            batch_handler=renderer.handle_jobs,
            batch=1,  # owners take turns, and so do the threads
            in_transaction=renderer.job_store.record,
            threads=RENDER_THREADS,
        )
        self.renderer = renderer
        self._draining = False
        self.heartbeat = Heartbeat(
            queue.store,
            self.name,
            self._heartbeat_state,
            alive=lambda: self.alive or self._draining,
            now=lambda: queue.stats().now,
        )

    def start(self) -> None:
        self.heartbeat.start()
        super().start()

    def join(self) -> None:
        """Wait for the grace period, release unfinished jobs and close the browser."""
        try:
            super().join()
        finally:
            self.heartbeat.stop()
            self.renderer.close()

    def drain(self) -> int:
        with self.drains():
            return super().drain()

    @contextmanager
    def drains(self) -> Iterator[None]:
        """Keep the heartbeat going meanwhile, and close the browser at the end."""
        self._draining = True
        self.heartbeat.start()
        try:
            yield
        finally:
            self._draining = False
            self.heartbeat.stop()
            self.renderer.close()

    def _heartbeat_state(self) -> dict[str, Any]:
        done, stuck = self.renderer.rendered_count, self.renderer.is_stuck
        return {"done": done, "stopping": self.stopping, "stuck": stuck}


def _requested_template(library: TemplateLibrary, document: Mapping[str, Any]) -> str:
    """Name the version of a request; if it was deleted and not pinned, the current template."""
    version: str = document.get("version", document["template"])
    try:
        library.get(version)
    except RenderFailed as problem:
        if document.get("pinned") or "stored" in problem.details:
            raise
        version = document["template"]
    return version


def parse_paper(payload: Mapping[str, Any]) -> Paper:
    options = dict(payload.get("paper") or {})
    if "margin_mm" in options:
        options["margin_mm"] = tuple(options["margin_mm"])
    options["conformance"] = tuple(payload.get("conformance", ()))
    try:
        return Paper(**options)
    except TypeError:
        raise TemplateError("there is no such paper format") from None


def _default_engines(config: PdfRenderConfig) -> EngineFactory:
    """Build engines without settings: any that this machine has."""
    patterns = list(config.url_allowlist)
    allowed = (lambda url: validate_url(url, patterns)) if patterns else None
    return lambda name: pick_engine(name, ChromiumSettings(is_url_allowed=allowed))
