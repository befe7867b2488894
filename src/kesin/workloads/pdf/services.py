"""Builds templates, engines, storage and workers from the settings."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from kesin.engine.queue import Queue
from kesin.engine.transfer.backup import BackupFile
from kesin.engine.workload import WorkloadContext
from kesin.foundation.encryption import key_ring
from kesin.foundation.logs import Logger
from kesin.foundation.messages import Message
from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import Settings
from kesin.lifecycle.budget import HOUR_S
from kesin.workloads.pdf.batches.store import PdfBatchStore
from kesin.workloads.pdf.config import SHIPPED, FailSafePolicy, PdfRenderConfig
from kesin.workloads.pdf.engines import pick_engine
from kesin.workloads.pdf.engines.base import Engine
from kesin.workloads.pdf.engines.browser import ChromiumSettings
from kesin.workloads.pdf.engines.network_guard import Fetch
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.store import STORED_PER_BYTE, PdfJobStore
from kesin.workloads.pdf.links import PdfLinks
from kesin.workloads.pdf.safe_fetch import FetchedResource, FetchRefused, fetch
from kesin.workloads.pdf.security import validate_url
from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.base import StorageMisconfigured
from kesin.workloads.pdf.templating.pictures import PictureLimits
from kesin.workloads.pdf.uploads.store import PdfUploads
from kesin.workloads.pdf.webhooks.worker import Webhooks

if TYPE_CHECKING:
    from kesin.workloads.pdf.jobs.rq_worker import PdfRqWorker
    from kesin.workloads.pdf.jobs.worker import PdfRenderWorker, PdfWorker
    from kesin.workloads.pdf.templating.library import TemplateLibrary
    from kesin.workloads.pdf.templating.versions import TemplateVersions

MAX_WATCHED: Final = 2_000  # files of the folder of templates
RETRY_S: Final = 30  # until an active version that cannot be used is read again
# Once a process: a folder would be made again while its disk is missing.
_open_storage_once: Final = lru_cache(maxsize=8)(open_storage)
log = Logger("kesin.pdf")


def load_pdf_templates(settings: Settings) -> TemplateLibrary:
    """Load Kesin's own templates, overridden by the templates in the configured folder."""
    from kesin.workloads.pdf.templating.library import TemplateLibrary, read_further_fonts

    further, own = settings.pdf_fonts, settings.pdf_templates
    for name, folder in (("KESIN_PDF_FONTS", further), ("KESIN_PDF_TEMPLATES", own)):
        if folder is not None and not folder.is_dir():
            why = "there is no folder %(folder)s: check %(setting)s"
            raise Unavailable(why, folder=folder, setting=name)
    fonts = read_further_fonts(further, settings) if further else {}
    folders = (SHIPPED, own) if own else (SHIPPED,)
    return TemplateLibrary.load(folders, pictures=picture_limits(settings), fonts=fonts)


def picture_limits(settings: Settings) -> PictureLimits:
    """Convert the settings, in millions of pixels."""
    picture, document = settings.pdf_picture_megapixels, settings.pdf_document_megapixels
    return PictureLimits(picture * 1_000_000, document * 1_000_000)


class TemplateSource:
    """The templates in use, loaded again when a file has changed or another version is active."""

    def __init__(self, settings: Settings, versions: TemplateVersions) -> None:
        self._settings = settings
        self.versions = versions
        self._lock = threading.Lock()
        self._library: TemplateLibrary | None = None
        self._stamp: object = None

    def library(self) -> TemplateLibrary:
        """Return the templates as they are now; while a change cannot be used, as they were."""
        with self._lock:
            paths = self._settings.pdf_templates, self._settings.pdf_fonts
            active, broken = self.versions.active(), self._library and self._library.broken
            retry = broken and not broken.keys().isdisjoint(active)
            tick = self.versions.clock.monotonic() // RETRY_S if retry else None
            stamp = [active, tick, *map(_folder_stamp, paths)]
            if self._library is None or stamp != self._stamp:
                self._library = self._load(self._library, active)
                self._stamp = stamp
            return self._library

    def _load(self, current: TemplateLibrary | None, active: Mapping[str, str]) -> TemplateLibrary:
        """Load the templates; one that cannot be used any more stays as it was."""
        used = {} if current is None else {name: current.get(name) for name in current.names}
        rejected: dict[str, RenderFailed | Unavailable] = {}
        try:
            library = load_pdf_templates(self._settings)
        except (RenderFailed, Unavailable) as problem:
            if current is None:
                raise
            rejected = dict.fromkeys(used, problem)
            library = current
        else:
            library.read_version, library.active = self.versions.read, active
            for name, version in active.items():
                library.use_version(name, version)
            for name, template in used.items():
                same = template.version == active.get(name, "")
                if current is not None and same and name in library.broken:
                    rejected[name] = library.broken[name]
                    library.adopt(name, current)
        for name, why in {**library.broken, **rejected}.items():
            log.warning("template_not_loaded", template=name, why=str(why))
        library.rejected = rejected
        return library


def _folder_stamp(folder: Path | None) -> object:
    if folder is None:
        return None
    try:
        states = ((path, path.stat()) for path in islice(folder.rglob("*"), MAX_WATCHED))
        return {(path, state.st_mtime_ns, state.st_size) for path, state in states}
    except OSError as problem:  # a file was removed just now
        return problem


def chromium_settings(settings: Settings) -> ChromiumSettings:
    patterns = settings.pdf_allowed_urls.split()
    return ChromiumSettings(
        executable=settings.pdf_chromium,
        isolation=settings.pdf_isolation,
        sandbox=settings.pdf_sandbox,
        is_url_allowed=(lambda url: validate_url(url, patterns)) if patterns else None,
        new_fetch=lambda: _measured_fetch(picture_limits(settings)),
    )


def _measured_fetch(pictures: PictureLimits) -> Fetch:
    """Return how a document fetches allow-listed URLs; pictures that are too large are refused."""
    counted: dict[bytes, int] = {}
    one_at_a_time = threading.Lock()  # a browser fetches several at once

    def fetch_measured(url: str) -> FetchedResource:
        fetched = fetch(url)
        try:
            with one_at_a_time:
                pictures.check_file(fetched.body, counted)
        except RenderFailed as problem:
            raise FetchRefused(problem.message) from None
        return fetched

    return fetch_measured


def create_pdf_engine(settings: Settings, name: str | None = None) -> Engine:
    """Create the engine with this name, or the best available one; raises RenderFailed."""
    return pick_engine(name, chromium_settings(settings))


def render_config(settings: Settings) -> PdfRenderConfig:
    allowed = set(filter(None, map(str.strip, settings.pdf_allowed_templates.split(","))))
    return PdfRenderConfig(
        hard_timeout=settings.pdf_hard_timeout_s,
        artifact_ttl_seconds=settings.pdf_ttl_hours * HOUR_S,
        cleanup_interval_seconds=round(settings.tidy_s),
        fail_safe_policy=FailSafePolicy(settings.pdf_fail_safe),
        template_allowlist=allowed or {page.parent.name for page in SHIPPED.glob("*/template.html")},
        url_allowlist=settings.pdf_allowed_urls.split(),
    )


def artifacts_address(settings: Settings) -> str:
    """Return the configured address of the storage, else a folder beside the database."""
    return settings.pdf_artifacts or str(settings.data_dir / "artifacts")


def backup_files(settings: Settings) -> Iterator[BackupFile | str]:
    """Yield the folder of the PDFs; a note for what a backup cannot include."""
    address = artifacts_address(settings)
    if address.startswith("s3://"):
        yield f"PDFs and template versions in {address}: enable versioning or replication for the bucket"
    else:
        folder = unquote(urlsplit(address).path) if "://" in address else address
        yield BackupFile("artifacts", Path(folder))
    if settings.pdf_templates is not None:
        yield f"templates in {settings.pdf_templates}: keep them with your programs' source code"


def open_artifacts(settings: Settings, queue: Queue) -> PdfArtifactStore:
    """Open the store of finished PDFs with the clock of this queue."""
    try:
        return PdfArtifactStore(_open_storage_once(artifacts_address(settings)), queue.clock)
    except StorageMisconfigured as problem:
        raise Unavailable("%(problem)s: check KESIN_PDF_ARTIFACTS", problem=problem) from None


def open_templates(settings: Settings, queue: Queue) -> TemplateSource:
    from kesin.workloads.pdf.templating.versions import TemplateVersions

    versions = TemplateVersions(queue, lambda: open_artifacts(settings, queue).storage)
    return TemplateSource(settings, versions)


def open_job_store(context: WorkloadContext) -> PdfJobStore:
    queue = context.commands.queues["pdf"]
    largest = context.settings.pdf_body_kb * 1024 * STORED_PER_BYTE
    queue.max_payload_bytes = max(queue.max_payload_bytes, largest)
    return PdfJobStore(queue, open_artifacts(context.settings, context.queue))


def open_batch_store(context: WorkloadContext) -> PdfBatchStore:
    queue = context.commands.queues["pdf_batches"]
    artifacts = open_artifacts(context.settings, context.queue)
    return PdfBatchStore(queue, open_job_store(context), artifacts)


def create_renderer(settings: Settings, queue: Queue) -> PdfRenderWorker:
    from kesin.workloads.pdf.jobs.worker import PdfRenderWorker

    artifacts = open_artifacts(settings, queue)
    templates = open_templates(settings, queue)
    templates.library()  # a bad template is reported before a job is claimed
    jobs, config = PdfJobStore(queue, artifacts), render_config(settings)
    engines, library = partial(create_pdf_engine, settings), templates.library
    ring = key_ring(settings)
    return PdfRenderWorker(jobs, artifacts, config, library=library, engines=engines, ring=ring)


def create_worker(context: WorkloadContext) -> PdfWorker:
    from kesin.workloads.pdf.jobs.worker import PdfWorker

    return PdfWorker(context.queue, create_renderer(context.settings, context.queue))


def create_rq_worker(context: WorkloadContext) -> PdfRqWorker:
    if not context.settings.redis_url:
        raise Unavailable("RQ runs jobs that are kept in Redis: set KESIN_REDIS_URL")
    from kesin.workloads.pdf.jobs.rq_worker import PdfRqWorker

    renderer = create_renderer(context.settings, context.queue)
    return PdfRqWorker(context.queue, renderer, context.settings.redis_url)


NOT_INSTALLED: Final = "pdf_not_installed"


class PdfServices:
    """Templates, jobs, batches, storage, webhooks and links: what the routes and pages use."""

    def __init__(self, context: WorkloadContext, library: TemplateLibrary) -> None:
        settings, config = context.settings, render_config(context.settings)
        allowed = config.template_allowlist | library.active.keys()
        self.config = config.model_copy(update={"template_allowlist": allowed})
        self.library, self.batches = library, open_batch_store(context)
        self.jobs, self.artifacts = self.batches.jobs, self.batches.artifacts
        storage, queue = self.artifacts.storage, self.jobs.queue
        self.uploads = PdfUploads(storage, queue.now, settings.pdf_upload_hours)
        self.hooks, self.links = Webhooks(context), PdfLinks(settings, queue)
        self.ring = key_ring(settings)


class PdfServiceLoader:
    """Loads the services on first use."""

    def __init__(self, context: WorkloadContext) -> None:
        self.context = context
        self._lock = threading.Lock()
        self._services: PdfServices | None = None

    @cached_property
    def templates(self) -> TemplateSource:
        return open_templates(self.context.settings, self.context.commands.queues["pdf"])

    @property
    def services(self) -> PdfServices:
        """The services; raises Unavailable with what to install or set, and retries next time."""
        with self._lock:
            try:
                library = self.templates.library()
            except ImportError as problem:
                why = "PDFs need %(what)s: install it with `pip install 'kesin[pdf]'`"
                raise Unavailable(why, code=NOT_INSTALLED, what=problem.name or "more") from None
            except RenderFailed as problem:
                why, reason = "the templates cannot be used: %(problem)s", Message(problem.message)
                raise Unavailable(why, problem=reason) from None
            if self._services is None or self._services.library is not library:
                self._services = PdfServices(self.context, library)
            return self._services
