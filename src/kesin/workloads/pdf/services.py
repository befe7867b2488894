"""Templates, engines, storage and worker as the settings want them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import Settings
from kesin.lifecycle.budget import HOUR_S
from kesin.workloads.pdf.config import SHIPPED, FailSafePolicy, PdfRenderConfig
from kesin.workloads.pdf.engines import pick_engine
from kesin.workloads.pdf.engines.base import Engine
from kesin.workloads.pdf.engines.chromium_settings import ChromiumSettings
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.jobs.store import PdfJobStore
from kesin.workloads.pdf.security import validate_url
from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.storage.artifacts import PdfArtifactStore
from kesin.workloads.pdf.storage.backup import artifacts_place
from kesin.workloads.pdf.storage.base import StorageBackend, StorageMisconfigured
from kesin.workloads.pdf.webhooks.worker import Hooks

if TYPE_CHECKING:
    from kesin.workloads.pdf.jobs.rq_worker import PdfRqWorker
    from kesin.workloads.pdf.jobs.worker import PdfRenderWorker, PdfWorker
    from kesin.workloads.pdf.templating.library import TemplateBook


def book_of(settings: Settings) -> TemplateBook:
    """The templates that come with Kesin, and those of the configured folder over them."""
    from kesin.workloads.pdf.templating.library import (
        TemplateBook,  # its libraries come with kesin[pdf]
    )

    own = settings.pdf_templates
    if own is None:
        return TemplateBook.load()
    if not own.is_dir():
        raise Unavailable(f"there is no folder {own}: look at KESIN_PDF_TEMPLATES")
    return TemplateBook.load((SHIPPED, own))


def chromium_settings(settings: Settings) -> ChromiumSettings:
    """How the browser is used here."""
    patterns = settings.pdf_allowed_urls.split()
    return ChromiumSettings(
        executable=settings.pdf_chromium,
        isolation=settings.pdf_isolation,
        sandbox=settings.pdf_sandbox,
        allowed=(lambda url: validate_url(url, patterns)) if patterns else None,
    )


def engine_of(settings: Settings, named: str | None = None) -> Engine:
    """The engine of this name, or the best there is; raises RenderFailed."""
    return pick_engine(named, chromium_settings(settings))


def config_of(settings: Settings) -> PdfRenderConfig:
    """The settings in the seed's words."""
    named = {one.strip() for one in settings.pdf_allowed_templates.split(",") if one.strip()}
    return PdfRenderConfig(
        hard_timeout=settings.pdf_hard_timeout_s,
        artifact_ttl_seconds=settings.pdf_ttl_hours * HOUR_S,
        cleanup_interval_seconds=round(settings.tidy_s),
        fail_safe_policy=FailSafePolicy(settings.pdf_fail_safe),
        template_allowlist=named or set(_shipped_names()),
        url_allowlist=settings.pdf_allowed_urls.split(),
    )


@lru_cache(maxsize=1)
def _shipped_names() -> frozenset[str]:
    """The templates that come with Kesin."""
    return frozenset(one.name for one in SHIPPED.iterdir() if (one / "template.html").is_file())


def artifacts_of(house: WorkloadContext) -> PdfArtifactStore:
    """Where finished PDFs are kept."""
    return storage_of(house.settings, house.queue)


def storage_of(settings: Settings, queue: Queue) -> PdfArtifactStore:
    """The same, timed by the clock of this queue."""
    try:
        return PdfArtifactStore(_opened(artifacts_place(settings)), queue.clock)
    except StorageMisconfigured as problem:
        raise Unavailable(f"{problem}: look at KESIN_PDF_ARTIFACTS") from None


@lru_cache(maxsize=8)
def _opened(place: str) -> StorageBackend:
    """Once in a process: opened again, a folder whose disk is away would be begun anew, empty."""
    return open_storage(place)


def jobs_of(house: WorkloadContext) -> PdfJobStore:
    """The jobs, with their storage."""
    return PdfJobStore(house.commands.queues["pdf"], artifacts_of(house))


def renderer_of(settings: Settings, queue: Queue) -> PdfRenderWorker:
    """Templates, engines and storage around a queue of jobs: all that rendering needs."""
    from kesin.workloads.pdf.jobs.worker import PdfRenderWorker

    artifacts = storage_of(settings, queue)
    return PdfRenderWorker(
        PdfJobStore(queue, artifacts),
        artifacts,
        config_of(settings),
        book=book_of(settings),
        engines=lambda named: engine_of(settings, named),
    )


def worker_of(house: WorkloadContext) -> PdfWorker:
    """The worker of a process that does nothing else."""
    from kesin.workloads.pdf.jobs.worker import PdfWorker

    return PdfWorker(house.queue, renderer_of(house.settings, house.queue))


def rq_worker_of(house: WorkloadContext) -> PdfRqWorker:
    """The same, sent for over RQ."""
    if not house.settings.redis_url:
        raise Unavailable("RQ carries jobs that live in Redis: set KESIN_REDIS_URL")
    from kesin.workloads.pdf.jobs.rq_worker import PdfRqWorker

    return PdfRqWorker(house.queue, renderer_of(house.settings, house.queue))


NOT_INSTALLED: Final = "pdf_not_installed"


@dataclass(frozen=True, slots=True)
class Tools:
    """Templates, jobs and their storage."""

    config: PdfRenderConfig
    book: TemplateBook
    jobs: PdfJobStore
    artifacts: PdfArtifactStore
    hooks: Hooks


class Shop:
    """Opens at the first question."""

    def __init__(self, house: WorkloadContext) -> None:
        self.house = house
        self._lock = threading.Lock()
        self._tools: Tools | None = None

    @property
    def tools(self) -> Tools:
        """Raises Unavailable with what to install or to set; the next question tries again."""
        with self._lock:
            if self._tools is None:
                self._tools = self._made()
            return self._tools

    def _made(self) -> Tools:
        try:
            book = book_of(self.house.settings)
        except ImportError as problem:
            raise Unavailable(
                f"PDFs need {problem.name or 'more'}: install it with `pip install 'kesin[pdf]'`",
                code=NOT_INSTALLED,
            ) from None
        except RenderFailed as problem:
            raise Unavailable(f"the templates cannot be used: {problem.message}") from None
        artifacts = artifacts_of(self.house)
        return Tools(
            config=config_of(self.house.settings),
            book=book,
            jobs=PdfJobStore(self.house.commands.queues["pdf"], artifacts),
            artifacts=artifacts,
            hooks=Hooks(self.house),
        )
