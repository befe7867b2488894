"""The pdf workload: renders HTML templates to PDF outside of the request.

It has three queues: jobs, batches of many jobs, and webhooks that report on both. Their workers run
in processes of their own, never in the process that answers requests. The names of the seed can be
imported from here; each is loaded on first use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kesin.engine.transfer.backup import BackupFile
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.extras import LIBRARIES
from kesin.foundation.settings import Settings
from kesin.workloads.pdf.advice import ADVICE
from kesin.workloads.pdf.batches.lifecycle import batch_lifecycle
from kesin.workloads.pdf.lifecycle import configured_lifecycle
from kesin.workloads.pdf.webhooks.lifecycle import webhook_lifecycle

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric
    from typer import Typer

    from kesin.engine.worker import Worker
    from kesin.workloads.common.demo import DemoPart

_ENGINES: Final = ("playwright", "weasyprint")  # one is enough, and may be on another machine
_NEEDS: Final = (*(name for name in LIBRARIES["pdf"] if name not in _ENGINES), "jinja2")
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

__all__ = ["PDF", "PDF_BATCHES", "PDF_WEBHOOKS", *_NAMES]  # noqa: PLE0604  # all of them are names


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _pages() -> object:
    from kesin.workloads.pdf.pages import PAGES

    return PAGES


def _cli() -> Typer:
    from kesin.workloads.pdf.cli import app

    return app


def _router(context: WorkloadContext) -> APIRouter:
    from kesin.workloads.pdf.api import pdf_router

    return pdf_router(context)


def _worker(context: WorkloadContext) -> Worker:
    from kesin.workloads.pdf.services import create_worker

    return create_worker(context)


def _rq_worker(context: WorkloadContext) -> Worker:
    from kesin.workloads.pdf.services import create_rq_worker

    return create_rq_worker(context)


def _dispatch(context: WorkloadContext) -> int:
    from kesin.workloads.pdf.jobs.dispatch import dispatch_waiting

    return dispatch_waiting(context.queue)


def _delete_expired(context: WorkloadContext) -> int:
    from kesin.workloads.pdf.cleanup import delete_expired

    return delete_expired(context)


def _metrics(context: WorkloadContext) -> Iterable[Metric]:
    from kesin.workloads.pdf.metrics import collect_metrics

    return collect_metrics(context)


def _backup_files(settings: Settings) -> Iterable[BackupFile | str]:
    from kesin.workloads.pdf.storage.backup import backup_files

    return backup_files(settings)


def _batch_worker(context: WorkloadContext) -> Worker:
    from kesin.workloads.pdf.batches.worker import build_worker

    return build_worker(context)


def _hook_worker(context: WorkloadContext) -> Worker:
    from kesin.workloads.pdf.webhooks.worker import build_worker

    return build_worker(context)


def _demo() -> DemoPart:
    from kesin.workloads.pdf.demo import PdfDemo

    return PdfDemo()


PDF: Final = Workload(
    "pdf",
    configured_lifecycle,
    "HTML templates to PDF",
    title="PDFs",
    has_sites=False,
    personal_fields=frozenset({"variables", "file_name"}),
    worker=_worker,
    push_worker=_rq_worker,
    needs_own_process=True,
    opens_secrets=False,
    in_redis=True,
    keys_name_tenant=True,
    after_sweep=_delete_expired,
    periodic=_dispatch,
    metrics=_metrics,
    routes=_router,
    pages=_pages,
    cli=_cli,
    demo=_demo,
    advice=ADVICE.describe,
    backup_files=_backup_files,
    needs=_NEEDS,
)
PDF_BATCHES: Final = Workload(
    "pdf_batches",
    batch_lifecycle,
    "Many rows of one template to one file",
    title="PDF batches",
    part_of="pdf",
    has_sites=False,
    personal_fields=frozenset({"file_name", "webhook_url"}),
    worker=_batch_worker,
    needs_own_process=True,
    opens_secrets=False,
    in_redis=True,
    advice=ADVICE.describe,
    needs=_NEEDS,
)
PDF_WEBHOOKS: Final = Workload(
    "pdf_webhooks",
    webhook_lifecycle,
    "Telling others that a PDF is there",
    title="PDF webhooks",
    part_of="pdf",
    has_sites=False,
    personal_fields=frozenset({"url"}),  # it may hold a secret
    worker=_hook_worker,
    needs_own_process=True,
    opens_secrets=False,
    in_redis=True,
    advice=ADVICE.describe,
    needs=_NEEDS,
)
