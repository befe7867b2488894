"""The routes for producers and scripts, with the paths and shapes of the seeds."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import iso
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Forbidden, Problem
from kesin.foundation.text import csv_text
from kesin.store.records import Filter
from kesin.web import dependencies
from kesin.web.auth import GuardedRouter
from kesin.web.bodies import LargeBodyRoute
from kesin.web.dependencies import JSON, UNCACHED, IgnoreColumns, RawBody, SignedInActor
from kesin.workloads.common.columns import column_names
from kesin.workloads.common.stores import job_pages
from kesin.workloads.oci import adjustments, reconciliation, script
from kesin.workloads.oci.api import control_routes, schemas
from kesin.workloads.oci.api.control_routes import CSV_FILE, SiteId, add_cron_routes
from kesin.workloads.oci.conversions.conversion import CONSENT_FIELDS, CONSENTS, CONVERSION_FIELDS
from kesin.workloads.oci.conversions.identifiers import EXPORTED_FIELDS
from kesin.workloads.oci.conversions.ingest import IngestResult, ingest
from kesin.workloads.oci.conversions.parsing import CONTENT_TYPES, MAX_ROWS, parse_body
from kesin.workloads.oci.lifecycle import SENDABLE
from kesin.workloads.oci.site import HEARTBEAT, SiteContext, require_site

SESSION_S: Final = 300
PAUSED_HEADER: Final = "X-Kesin-Paused"
_ADJUSTMENT_COLUMNS: Final = (
    *("Order ID", "Conversion Name", "Adjustment Time", "Adjustment Type"),
    *("Adjusted Value", "Adjusted Value Currency"),
)

_CONVERSION: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["externalId", "conversionTime", "conversionValue"],
    "properties": {
        **{name: {"type": "string"} for name in (*CONVERSION_FIELDS, "email")},
        "phone": {"type": ["string", "integer"]},
        "conversionValue": {"type": ["number", "string"]},
        "revision": {"type": ["integer", "string"]},
        "consent": {
            "type": "object",
            "properties": {name: {"enum": [*CONSENTS]} for name in CONSENT_FIELDS},
            "additionalProperties": False,
        },
        **{name: {"description": "of our own files; ignored"} for name in EXPORTED_FIELDS},
    },
    "additionalProperties": False,
}
_LIST: Final[dict[str, Any]] = {"type": "array", "items": _CONVERSION, "maxItems": MAX_ROWS}
_SITE: Final[dict[str, Any]] = {"siteId": {"type": "string"}}
_DOCUMENT: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["conversions"],
    "properties": {**_SITE, "conversions": _LIST},
}
_SINGLE: Final = {**_CONVERSION, "properties": {**_CONVERSION["properties"], **_SITE}}
_TEXT: Final = {"schema": {"type": "string"}}
_CONTENTS: Final = ({"schema": {"anyOf": [_SINGLE, _LIST, _DOCUMENT]}}, _TEXT, _TEXT)
_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": dict(zip(CONTENT_TYPES, _CONTENTS, strict=True))}
}


def oci_router(context: WorkloadContext) -> APIRouter:
    router = GuardedRouter(tags=["oci"])
    batch_router = GuardedRouter(tags=["oci"], route_class=LargeBodyRoute)
    _add_producer_routes(router, context)
    _add_script_routes(router, batch_router, context)
    control_routes.add_read_routes(router, context)
    control_routes.add_action_routes(router, batch_router, context)
    _add_adjustment_routes(router, batch_router, context)
    control_routes.add_site_routes(router, context)
    add_cron_routes(router, context)
    router.routes.extend(batch_router.routes)  # include_router would build each route again
    return router


def _add_producer_routes(router: APIRouter, context: WorkloadContext) -> None:
    @router.post("/api/oci/conversions", response_model=schemas.Ingested, openapi_extra=_BODY)
    async def post_conversions(
        request: Request,
        actor: SignedInActor,
        body: RawBody,
        site_id: SiteId = None,
        ignore_columns: IgnoreColumns = None,
    ) -> Response:
        """Accept up to 10,000 conversions as JSON, NDJSON or CSV; one result for each row.

        A row with an unknown field is rejected. A CSV with an unknown column is refused, unless
        `ignoreColumns` names the column; all columns of Kesin's own files are accepted.
        """
        kind, ignored = request.headers.get("content-type", ""), column_names(ignore_columns)
        given = (actor, body, kind, site_id, ignored)
        return await dependencies.run_with_body(request, body, take_in, *given)

    def take_in(actor: Actor, body: bytes, content_type: str, site_id: str | None, ignored: frozenset[str]) -> Response:
        accounts = context.commands.accounts
        accounts.require(actor, "oci:ingest", "oci.ingest", queue="oci", site=site_id)
        named, rows = parse_body(body, content_type, ignored)
        if site_id and named and site_id != named:
            raise Problem("the address and the body name different sites", code="two_sites")
        site = require_site(context, actor, site_id or named, "oci:ingest", action="oci.ingest")
        results = ingest(site, rows, actor=actor)
        return uncached_response({"results": [_ingest_row(result) for result in results]})


def _ingest_row(row: IngestResult) -> dict[str, Any]:
    """The body of a result: optional fields are left out if they are empty."""
    optional = {name: getattr(row, name) for name in ("id", "code", "field", "message", "differs")}
    body = {"index": row.index, "externalId": row.external_id, "result": row.result}
    return body | {name: value for name, value in optional.items() if value}


def _add_adjustment_routes(router: APIRouter, batches: APIRouter, context: WorkloadContext) -> None:
    @batches.post("/api/oci/adjustments", response_model_exclude_defaults=True)
    def post_adjustments(actor: SignedInActor, body: schemas.AdjustmentsBody) -> schemas.Ingested:
        """Retract or restate up to 10,000 earlier conversions; one result for each row."""
        site = require_site(context, actor, body.site_id, "oci:ingest", action="oci.adjust")
        results = adjustments.adjust(site, body.adjustments, actor=actor)
        return schemas.Ingested.model_validate({"results": results}, from_attributes=True)

    @router.get("/api/oci/adjustments.csv", **CSV_FILE)
    def adjustments_csv(actor: SignedInActor, site_id: SiteId = None) -> StreamingResponse:
        """Adjustments to upload, in Google's format; after uploading, close them with MARK_SENT."""
        site = require_site(context, actor, site_id, "read", action="oci.adjustments_file")
        return dependencies.csv_response(f"adjustments-{site.id}", _adjustment_lines(site))


def _adjustment_lines(site: SiteContext) -> Iterator[str]:
    """Google's file: the header, then a page at a time, oldest first."""
    where = Filter(states=SENDABLE, tenants=(site.id,), oldest_first=True)
    yield csv_text([_ADJUSTMENT_COLUMNS])
    for page in job_pages(adjustments.beside(site).queue, where):
        payloads = [job.payload for job in page]
        sold = site.payloads([payload["conversionId"] for payload in payloads])
        yield csv_text(_adjustment_cells(it, sold.get(it["conversionId"], {})) for it in payloads)


def _adjustment_cells(payload: dict[str, Any], sold: dict[str, Any]) -> list[Any]:
    head, _, minutes = payload["adjustedAt"].replace("T", " ").rpartition(":")  # +0300 in files
    names = (payload["orderId"], sold.get("conversionName"), head + minutes, payload["type"])
    return [*names, payload.get("value"), payload.get("currency")]


def _add_script_routes(  # noqa: C901  # one function a route
    router: APIRouter, batches: APIRouter, context: WorkloadContext
) -> None:
    @router.get("/api/oci/google-ads-export", responses={200: {"model": list[schemas.Item] | schemas.PreviewBody}})
    def google_ads_export(
        actor: SignedInActor,
        site_id: SiteId = None,
        mark_as_exported: Annotated[bool, Query(alias="markAsExported")] = False,  # noqa: FBT002
        limit: Annotated[int, Query(ge=1, le=script.MAX_EXPORT_ROWS)] = script.MAX_EXPORT_ROWS,
    ) -> Response:
        """Claim rows for a script and return exactly those rows, or only preview an export.

        A preview shows click ids only to scripts and to callers who may reveal them.
        """
        if mark_as_exported:
            site = require_site(context, actor, site_id, "oci:script", action="oci.export")
            if not actor.name.startswith("key:"):  # a browser follows any link with its cookie
                site.note(actor, "oci.export", allowed=False)
                raise Forbidden("only a key can claim rows; without markAsExported it is a preview")
            if items := script.export(site, limit=limit, actor=actor.name):
                site.note(actor, "oci.export", {"rows": len(items)})  # click ids went out
            headers = {PAUSED_HEADER: "true"} if not items and site.is_paused else {}
            return uncached_response(items, headers)
        site = require_site(context, actor, site_id, "read", "oci:script", action="oci.preview")
        masked = not (actor.has("reveal") or actor.has("oci:script"))
        preview = script.ExportPreview(site, limit=limit, masked=masked)
        if preview.items and not masked:
            site.note(actor, "oci.preview", {"rows": len(preview.items)})
        shown = {"items": preview.items, "counts": preview.counts, "warnings": preview.warnings}
        return uncached_response({"siteId": site.id, **shown})

    @batches.post("/api/oci/ack", response_model=schemas.Acked)
    def post_ack(actor: SignedInActor, body: schemas.AckBody) -> script.Report:
        """Report rows that Google accepted. Late and repeated reports are allowed."""
        site = require_site(context, actor, body.site_id, "oci:script", action="oci.ack")
        return script.ack(site, body.queue_ids, actor=actor.name)

    @batches.post("/api/oci/ack-failed", response_model=schemas.Acked)
    def post_ack_failed(actor: SignedInActor, body: schemas.AckFailedBody) -> script.Report:
        """Report rows that failed in the script; they become FAILED with the given reason."""
        site = require_site(context, actor, body.site_id, "oci:script", action="oci.ack_failed")
        error = {"code": body.error_code, "message": body.error_message}
        error["category"] = body.error_category
        return script.ack_failed(site, body.queue_ids, **error, actor=actor.name)

    @router.post("/api/oci/script-heartbeat")
    def script_heartbeat(actor: SignedInActor, body: schemas.HeartbeatBody) -> schemas.Ok:
        """Report a run of the script; the site shows a warning if reports stop."""
        site = require_site(context, actor, body.site_id, "oci:script", action="oci.heartbeat")
        heartbeat = body.model_dump(exclude={"site_id"}, exclude_none=True)
        at, before = ("tried_at", site.read_metadata(HEARTBEAT)) if body.error else ("at", None)
        site.put_metadata(HEARTBEAT, {**(before or {}), **heartbeat, at: context.queue.now()})
        return schemas.Ok()

    @batches.post("/api/oci/reconciliation")
    def post_reconciliation(actor: SignedInActor, body: schemas.ReconciliationBody) -> schemas.Ok:
        """Report Google's daily upload and conversion counts for a script's account."""
        site = require_site(context, actor, body.site_id, "oci:script", action="oci.reconciliation")
        script.require_channel(site)
        uploads = [(n.day.isoformat(), n.action, n.client, (n.successful, n.failed, n.pending)) for n in body.uploads]
        attributed = [(n.day.isoformat(), n.action, n.conversions) for n in body.attributed]
        zone = reconciliation.parse_zone(body.zone)
        reconciliation.store_copy(site, zone, uploads, attributed)
        return schemas.Ok()

    @router.post("/api/oci/v2/verify")
    def verify(actor: SignedInActor, body: schemas.OciSiteBody) -> schemas.Verified:
        """Exchange the key for a token that is valid for five minutes."""
        site = require_site(context, actor, body.site_id, "oci:script", action="oci.verify")
        accounts = context.commands.accounts
        token, until = accounts.start_key_session(actor, "oci:script", site.id, SESSION_S)
        return schemas.Verified(session_token=token, expires_at=iso(until) or "", site_id=site.id)


def uncached_response(value: Any, headers: dict[str, str] | None = None) -> Response:
    """A JSON response that no cache stores: exports contain click ids."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(text, media_type=JSON, headers={"cache-control": UNCACHED, **(headers or {})})
