"""HTML templates to PDF, away from the request that wants one.

Three queues: the jobs, the batches that feed many of them in, and the webhooks that tell of both.
All of their work is done in processes of its own, never in the one that answers requests. The
names of the seed can be imported from here; each is loaded when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kesin.engine.transfer.backup import Kept
from kesin.engine.workload import Panel, Workload, WorkloadContext
from kesin.foundation.extras import BRINGS
from kesin.foundation.settings import Settings
from kesin.workloads.pdf.batches.lifecycle import batch_lifecycle
from kesin.workloads.pdf.lifecycle import configured_lifecycle
from kesin.workloads.pdf.webhooks.lifecycle import hook_lifecycle

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric
    from typer import Typer

    from kesin.engine.worker import Worker

_ENGINES: Final = ("playwright", "weasyprint")  # one of them is enough, and may be elsewhere
_NEEDS: Final = (*(name for name in BRINGS["pdf"] if name not in _ENGINES), "jinja2")
_NAMES: Final[Mapping[str, str]] = {
    "FailSafePolicy": "config",
    "IllegalTransition": "jobs.store",
    "MAX_RETRIES": "errors",
    "PdfArtifactStore": "storage.artifacts",
    "PdfErrorCode": "errors",
    "PdfJob": "jobs.store",
    "PdfJobRequest": "schemas",
    "PdfJobResponse": "schemas",
    "PdfJobStatus": "jobs.store",
    "PdfJobStatusResponse": "schemas",
    "PdfJobStore": "jobs.store",
    "PdfRenderConfig": "config",
    "PdfRenderOptions": "schemas",
    "PdfRenderWorker": "jobs.worker",
    "PdfSecurityConfig": "security",
    "StorageBackend": "storage.base",
    "TRANSIENT_ERRORS": "errors",
    "UnknownJob": "jobs.store",
    "check_worker_health": "jobs.heartbeat",
    "compute_job_key": "jobs.store",
    "enqueue_pdf_job": "jobs.dispatch",
    "handle_unavailable": "jobs.submit",
    "sanitize_html_variables": "security",
    "should_retry": "errors",
    "validate_template": "security",
    "validate_url": "security",
}

__all__ = ["PDF", "PDF_BATCHES", "PDF_WEBHOOKS", *_NAMES]  # noqa: PLE0604  # names, all of them


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _cli() -> Typer:
    from kesin.workloads.pdf.cli import app

    return app


def _router(house: WorkloadContext) -> APIRouter:
    from kesin.workloads.pdf.api import pdf_router

    return pdf_router(house)


def _worker(house: WorkloadContext) -> Worker:
    from kesin.workloads.pdf.services import worker_of

    return worker_of(house)


def _called_worker(house: WorkloadContext) -> Worker:
    from kesin.workloads.pdf.services import rq_worker_of

    return rq_worker_of(house)


def _dispatched(house: WorkloadContext) -> int:
    from kesin.workloads.pdf.jobs.dispatch import dispatch_waiting

    return dispatch_waiting(house.queue)


def _tidied(house: WorkloadContext) -> int:
    from kesin.workloads.pdf.cleanup import tidied

    return tidied(house)


def _metrics(house: WorkloadContext) -> Iterable[Metric]:
    from kesin.workloads.pdf.metrics import collected

    return collected(house)


def _describe(code: str) -> Mapping[str, Any]:
    from kesin.workloads.pdf.advice import describe

    return describe(code)


def _keeps(settings: Settings) -> Iterable[Kept | str]:
    from kesin.workloads.pdf.storage.backup import kept

    return kept(settings)


def _batch_worker(house: WorkloadContext) -> Worker:
    from kesin.workloads.pdf.batches.worker import worker_of

    return worker_of(house)


def _hook_worker(house: WorkloadContext) -> Worker:
    from kesin.workloads.pdf.webhooks.worker import worker_of

    return worker_of(house)


PDF: Final = Workload(
    "pdf",
    configured_lifecycle,
    "HTML templates to PDF",
    has_sites=False,
    worker=_worker,
    push_worker=_called_worker,
    needs_own_process=True,
    after_sweep=_tidied,
    periodic=_dispatched,
    metrics=_metrics,
    routes=_router,
    cli=_cli,
    panels=(Panel("PDF", "/dashboard/pdf"),),
    advice=_describe,
    backup_files=_keeps,
    needs=_NEEDS,
)
PDF_BATCHES: Final = Workload(
    "pdf_batches",
    batch_lifecycle,
    "Many rows of one template to one file",
    has_sites=False,
    worker=_batch_worker,
    needs_own_process=True,
    advice=_describe,
    needs=_NEEDS,
)
PDF_WEBHOOKS: Final = Workload(
    "pdf_webhooks",
    hook_lifecycle,
    "Telling others that a PDF is there",
    has_sites=False,
    worker=_hook_worker,
    needs_own_process=True,
    advice=_describe,
    needs=_NEEDS,
)
