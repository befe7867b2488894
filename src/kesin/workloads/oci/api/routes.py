"""The doors for producers and scripts: conversions in, export, acknowledgements, heartbeat.

Paths and shapes are the seeds', so a script written for them goes on working. The operator's doors
and the cron caller's are in `api_control.py`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import iso
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem, Refused
from kesin.workloads.oci.api import schemas
from kesin.workloads.oci.api.common import Asker, Body, SiteId
from kesin.workloads.oci.api.control_routes import control_routes
from kesin.workloads.oci.conversions.ingest import RowResult, ingest
from kesin.workloads.oci.conversions.parsing import MAX_ROWS, TYPES, read_body
from kesin.workloads.oci.script import MOST, Report, ack, ack_failed, export, preview
from kesin.workloads.oci.site import HEARTBEAT, admitted, is_paused, put_fact

SESSION_S: Final = 300
PAUSED: Final = "X-Kesin-Paused"


_CONVERSION: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["externalId", "conversionTime", "conversionValue"],
    "properties": {
        "externalId": {"type": "string"},
        "gclid": {"type": "string"},
        "wbraid": {"type": "string"},
        "gbraid": {"type": "string"},
        "conversionName": {"type": "string"},
        "conversionTime": {"type": "string"},
        "conversionValue": {"type": ["number", "string"]},
        "conversionCurrency": {"type": "string"},
    },
}
_LIST: Final[dict[str, Any]] = {"type": "array", "items": _CONVERSION, "maxItems": MAX_ROWS}
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            TYPES[0]: {
                "schema": {
                    "anyOf": [
                        _CONVERSION,
                        _LIST,
                        {
                            "type": "object",
                            "required": ["conversions"],
                            "properties": {"siteId": {"type": "string"}, "conversions": _LIST},
                        },
                    ]
                }
            },
            TYPES[1]: {"schema": {"type": "string"}},
            TYPES[2]: {"schema": {"type": "string"}},
        },
    }
}


def oci_router(house: WorkloadContext) -> APIRouter:
    """Every route of the workload."""
    router = APIRouter(tags=["oci"])
    _producers(router, house)
    _scripts(router, house)
    control_routes(router, house)
    return router


def _producers(router: APIRouter, house: WorkloadContext) -> None:
    @router.post("/api/oci/conversions", response_model=schemas.Ingested, openapi_extra=_BODY)
    def post_conversions(
        request: Request, actor: Asker, body: Body, site_id: SiteId = None
    ) -> Response:
        """Take conversions in: JSON, NDJSON or CSV, up to 10 000; one result a row."""
        accounts = house.commands.accounts
        accounts.require(actor, "oci:ingest", "oci.ingest", queue="oci", site=site_id)
        named, rows = read_body(body, request.headers.get("content-type", ""))
        if site_id and named and site_id != named:
            raise Problem("the address and the body name two sites", code="two_sites")
        site = admitted(house, actor, site_id or named, "oci:ingest", action="oci.ingest")
        results = ingest(house, site, rows, actor=actor.name)
        told = [_ingest_row(one) for one in results]
        return sent(schemas.Ingested.model_construct(results=told))


def _ingest_row(row: RowResult) -> schemas.IngestRow:
    """Whom it is about is always told; the rest where there is something to tell."""
    known = [name for name in ("id", "code", "field", "message") if getattr(row, name) is not None]
    return schemas.IngestRow.model_construct(
        {"index", "external_id", "result", *known},
        index=row.index,
        external_id=row.external_id,
        result=row.result,
        id=row.id,
        code=row.code,
        field=row.field,
        message=row.message,
    )


def _scripts(router: APIRouter, house: WorkloadContext) -> None:
    @router.get(
        "/api/oci/google-ads-export",
        responses={200: {"model": list[schemas.Item] | schemas.PreviewBody}},
    )
    def google_ads_export(
        actor: Asker,
        site_id: SiteId = None,
        mark_as_exported: Annotated[bool, Query(alias="markAsExported")] = False,  # noqa: FBT002
        limit: Annotated[int, Query(ge=1, le=MOST)] = MOST,
    ) -> Response:
        """Claim rows for a script and hand over exactly those; or only show what would go."""
        if mark_as_exported:
            site = admitted(house, actor, site_id, "oci:script", action="oci.export")
            _need_key(house, actor, site.id)
            items = export(house, site, limit=limit, actor=actor.name)
            headers = {PAUSED: "true"} if not items and is_paused(house, site) else {}
            return plain(items, headers)
        site = admitted(house, actor, site_id, "read", "oci:script", action="oci.preview")
        found = preview(house, site, limit=limit)
        return plain(
            {
                "siteId": site.id,
                "items": found.items,
                "counts": found.counts,
                "warnings": found.warnings,
            }
        )

    @router.post("/api/oci/ack")
    def post_ack(actor: Asker, told: schemas.AckBody) -> schemas.Acked:
        """Google has these rows. Late and repeated reports are welcome."""
        site = admitted(house, actor, told.site_id, "oci:script", action="oci.ack")
        return _acked(ack(house, site, told.queue_ids, actor=actor.name))

    @router.post("/api/oci/ack-failed")
    def post_ack_failed(actor: Asker, told: schemas.AckFailedBody) -> schemas.Acked:
        """These rows failed at the script: they rest in FAILED with the reason."""
        site = admitted(house, actor, told.site_id, "oci:script", action="oci.ack_failed")
        report = ack_failed(
            house,
            site,
            told.queue_ids,
            code=told.error_code,
            message=told.error_message,
            category=told.error_category,
            actor=actor.name,
        )
        return _acked(report)

    @router.post("/api/oci/script-heartbeat")
    def script_heartbeat(actor: Asker, told: schemas.HeartbeatBody) -> schemas.Ok:
        """A script ran; the site warns when none does for long."""
        site = admitted(house, actor, told.site_id, "oci:script", action="oci.heartbeat")
        beat = told.model_dump(exclude={"site_id"}, exclude_none=True)
        put_fact(house, site, HEARTBEAT, {**beat, "at": house.queue.now()})
        return schemas.Ok()

    @router.post("/api/oci/v2/verify")
    def verify(actor: Asker, told: schemas.VerifyBody) -> schemas.Verified:
        """A token for five minutes in place of the key: less to lose in a log."""
        site = admitted(house, actor, told.site_id, "oci:script", action="oci.verify")
        token, ends = house.commands.accounts.start_key_session(
            actor, "oci:script", site.id, SESSION_S
        )
        return schemas.Verified(session_token=token, expires_at=iso(ends) or "", site_id=site.id)


def _need_key(house: WorkloadContext, actor: Actor, site: str) -> None:
    """A browser follows any link with its cookie, and a claim is a GET: no person claims."""
    if not actor.name.startswith("key:"):
        house.commands.accounts.note(actor, "oci.export", allowed=False, queue="oci", site=site)
        raise Refused("only a key claims rows; without markAsExported you see what would go")


def _acked(report: Report) -> schemas.Acked:
    refused = [schemas.RefusedRow(id=one, reason=why) for one, why in report.refused]
    return schemas.Acked(updated=report.updated, refused=refused)


def sent(body: BaseModel) -> Response:
    """The body as it is sent: written here, in the handler's thread, and not checked again."""
    text = body.model_dump_json(by_alias=True, exclude_unset=True)
    return Response(text, media_type="application/json")


def plain(value: Any, headers: dict[str, str] | None = None) -> Response:
    """A value that is JSON already; exports hold click ids, so nobody on the way keeps them."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    kept = {"cache-control": "private, no-store", **(headers or {})}
    return Response(text, media_type="application/json", headers=kept)
