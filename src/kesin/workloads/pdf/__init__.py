"""The pdf workload: renders HTML templates to PDF, in worker processes outside of the request."""

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

from kesin.engine.workload import Workload
from kesin.foundation.extras import LIBRARIES
from kesin.workloads.common import lazy
from kesin.workloads.pdf.errors import ADVICE
from kesin.workloads.pdf.lifecycle import batch_lifecycle, configured_lifecycle, webhook_lifecycle

_later = partial(lazy.later, __name__)
_attribute = partial(lazy.attribute, __name__)
_ENGINES: Final = ("playwright", "weasyprint")  # one is enough, and may be on another machine
_NEEDS: Final = (*(name for name in LIBRARIES["pdf"] if name not in _ENGINES), "jinja2")
_MODULES: Final[Mapping[str, str]] = {  # and the names of the seed in each, imported on first use
    "config": "FailSafePolicy PdfRenderConfig",
    "errors": "MAX_RETRIES PdfErrorCode TRANSIENT_ERRORS should_retry",
    "jobs.dispatch": "enqueue_pdf_job",
    "jobs.heartbeat": "check_worker_health",
    "jobs.store": "IllegalTransition PdfJob PdfJobStatus PdfJobStore UnknownJob compute_job_key",
    "jobs.submit": "handle_unavailable",
    "jobs.worker": "PdfRenderWorker",
    "schemas": "PdfJobRequest PdfJobResponse PdfJobStatusResponse PdfRenderOptions",
    "security": "PdfSecurityConfig sanitize_html_variables validate_template validate_url",
    "storage.artifacts": "PdfArtifactStore",
    "storage.base": "StorageBackend",
}
_NAMES: Final = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["PDF", "PDF_BATCHES", "PDF_WEBHOOKS", *_NAMES]  # noqa: PLE0604  # all of them are names


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_COMMON: Final[dict[str, Any]] = {
    "has_sites": False,
    "needs_own_process": True,
    "in_redis": True,
    "advice": ADVICE.describe,
    "needs": _NEEDS,
}
PDF: Final = Workload(
    "pdf",
    configured_lifecycle,
    "HTML templates to PDF",
    title="PDFs",
    opens_secrets=True,  # passwords of encrypted PDFs
    personal_fields=frozenset({"variables", "file_name", "title", "attachments"}),
    job_title=_later("jobs.store:pdf_title"),
    search_fields=("template",),
    worker=_later("services:create_worker"),
    push_worker=_later("services:create_rq_worker"),
    keys_name_tenant=True,
    after_sweep=_later("cleanup:delete_expired"),
    periodic=_later("cleanup:tend_jobs"),
    metrics=_later("metrics:collect_metrics"),
    routes=_later("api:pdf_router"),
    pages=_attribute("pages:PAGES"),
    cli=_attribute("cli:app"),
    demo=_later("demo:PdfDemo"),
    backup_files=_later("services:backup_files"),
    **_COMMON,
)
PDF_BATCHES: Final = Workload(
    "pdf_batches",
    batch_lifecycle,
    "One file from many rows of one template",
    title="PDF batches",
    part_of="pdf",
    personal_fields=frozenset({"variables", "file_name", "webhook_url"}),
    job_title="{template} × {rows}",
    worker=_later("batches.worker:build_worker"),
    opens_secrets=False,
    **_COMMON,
)
PDF_WEBHOOKS: Final = Workload(
    "pdf_webhooks",
    webhook_lifecycle,
    "Notifications that a PDF is ready",
    title="PDF webhooks",
    part_of="pdf",
    personal_fields=frozenset({"url"}),  # it may hold a secret
    job_title="{kind} {subject}",
    worker=_later("webhooks.worker:WebhookSender"),
    **_COMMON,  # it opens the key ring to sign links
)
