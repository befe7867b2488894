"""The routes for adjustments: taken in, and handed out as Google's file."""

from collections.abc import Iterator
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from kesin.engine.workload import WorkloadContext
from kesin.foundation.text import csv_text
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.web.dependencies import SignedInActor
from kesin.workloads.oci.adjustments import intake, settling
from kesin.workloads.oci.adjustments.lifecycle import SENDABLE
from kesin.workloads.oci.api import schemas
from kesin.workloads.oci.api.control_routes import CSV_FILE, SiteId, csv_response
from kesin.workloads.oci.site import SiteContext, require_site

_COLUMNS: Final = (
    *("Order ID", "Conversion Name", "Adjustment Time", "Adjustment Type"),
    *("Adjusted Value", "Adjusted Value Currency"),
)


def add_adjustment_routes(router: APIRouter, batches: APIRouter, context: WorkloadContext) -> None:
    @batches.post("/api/oci/adjustments", response_model_exclude_defaults=True)
    def post_adjustments(actor: SignedInActor, body: schemas.AdjustmentsBody) -> schemas.Ingested:
        """Retract or restate conversions that were sent before, up to 10 000; one result a row."""
        site = require_site(context, actor, body.site_id, "oci:ingest", action="oci.adjust")
        results = intake.adjust(site, body.adjustments, actor=actor)
        return schemas.Ingested.model_validate({"results": results}, from_attributes=True)

    @router.get("/api/oci/adjustments.csv", **CSV_FILE)
    def adjustments_csv(actor: SignedInActor, site_id: SiteId = None) -> StreamingResponse:
        """The adjustments that can be sent as Google's file; MARK_SENT once it is uploaded."""
        site = require_site(context, actor, site_id, "read", action="oci.adjustments_file")
        return csv_response(f"adjustments-{site.id}", _lines(site))


def _lines(site: SiteContext) -> Iterator[str]:
    """Google's file: the header, then a page at a time, oldest first."""
    queue = settling.beside(site).queue
    cursor: str | None = None
    where = Filter(states=SENDABLE, tenants=(site.id,), oldest_first=True)
    yield csv_text([_COLUMNS])
    while True:
        page = queue.jobs(where, limit=MAX_PAGE, cursor=cursor)
        payloads = [job.payload for job in page.jobs]
        sold = site.payloads([payload["conversionId"] for payload in payloads])
        yield csv_text(_cells(each, sold.get(each["conversionId"], {})) for each in payloads)
        cursor = page.cursor
        if cursor is None:
            return


def _cells(payload: dict[str, Any], sold: dict[str, Any]) -> list[Any]:
    head, _, minutes = payload["adjustedAt"].replace("T", " ").rpartition(":")  # +0300 in files
    names = (payload["orderId"], sold.get("conversionName"), head + minutes, payload["type"])
    return [*names, payload.get("value"), payload.get("currency")]
