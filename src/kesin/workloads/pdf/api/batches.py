"""The doors for batches: many rows in, one file out, and what came of every row.

A batch belongs to whoever asked for it. For anybody else but an admin there is no such batch.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from kesin.foundation.clock import iso
from kesin.foundation.ids import is_id
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Clash, Unavailable, Unknown
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.pdf.api.common import Asker, Cursor, admit, sent, told
from kesin.workloads.pdf.api.download import STORAGE_DOWN, Conditions, delivered
from kesin.workloads.pdf.batches.store import AskedBatch, Batch, BatchStatus, PdfBatchStore
from kesin.workloads.pdf.batches.submit import ordered
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStatus
from kesin.workloads.pdf.schemas import (
    BatchBody,
    BatchPage,
    BatchRequest,
    BatchResponse,
    BatchWhole,
    CsvQuery,
)
from kesin.workloads.pdf.services import Shop, Tools
from kesin.workloads.pdf.storage.base import StorageError, attachment

MOST_BATCHES: Final = 200
MOST_RESULTS: Final = 1_000
SOON_S: Final = 5
_TYPES: Final = {"zip": "application/zip", "merged": "application/pdf"}
_ENDINGS: Final = {"zip": ".zip", "merged": ".pdf"}
_FILE: Final[dict[str, Any]] = {"schema": {"type": "string", "format": "binary"}}
_FILES: Final[dict[str, Any]] = dict.fromkeys(_TYPES.values(), _FILE)


def _schema() -> dict[str, Any]:
    """What JSON may say; the parts it refers to are told of already, with the jobs."""
    told = BatchRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    del told["$defs"]
    return told


_ROWS: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _schema()},
            "text/csv": {"schema": {"type": "string"}},
        },
    }
}
_ASKED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": BatchResponse, "description": "The batch there is already"},
    202: {"model": BatchResponse, "description": "A new batch"},
}
_FETCHED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": _FILES, "description": "The file"},
    202: {"model": BatchBody, "description": "Not yet; Retry-After says when"},
    206: {"content": _FILES, "description": "The part that was asked for"},
    304: {"description": "The one you have is it"},
    410: {"description": "It is not there any more"},
    416: {"description": "It has no such part"},
}


async def whole_body(request: Request) -> bytes:
    """The body as it came: it may be JSON or CSV."""
    return await request.body()


Body = Annotated[bytes, Depends(whole_body)]


class _Desk:
    """The batches behind the doors, opened when somebody first comes in."""

    def __init__(self, shop: Shop) -> None:
        self.house = shop.house
        self.queue = shop.house.commands.queues["pdf_batches"]
        self._shop = shop

    @property
    def tools(self) -> Tools:
        return self._shop.tools

    @property
    def batches(self) -> PdfBatchStore:
        return PdfBatchStore(self.queue, self.tools.jobs, self.tools.artifacts)

    def batch(self, actor: Actor, batch_id: str) -> Batch:
        """The batch, if it is the actor's or the actor is an admin; another's looks like none."""
        found = self.batches.get(batch_id) if is_id(batch_id) else None
        if found is None or not (actor.is_admin or found.owner == actor.name):
            raise Unknown("there is no such batch")
        return found


def batch_router(shop: Shop) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["pdf"])
    desk = _Desk(shop)
    _asking(router, desk)
    _looking(router, desk)
    return router


def _asking(router: APIRouter, desk: _Desk) -> None:
    @router.post(
        "/pdf/batches",
        status_code=202,
        response_model=BatchResponse,
        responses=_ASKED,
        openapi_extra=_ROWS,
    )
    def create_pdf_batch(
        request: Request, actor: Asker, body: Body, query: Annotated[CsvQuery, Query()]
    ) -> Response:
        """One template with many rows, as JSON or CSV, to a zip or one PDF.

        202 and a new batch, or 200 and the equal one that has the file or will.
        """
        admit(desk.house, actor, "batch")
        kind = request.headers.get("content-type", "")
        order = ordered(desk.tools, desk.queue, body, kind, query)
        url = order.webhook_url
        if url is not None:
            desk.tools.hooks.check(url)

        def promise(batch_id: str) -> None:
            if url is not None:
                desk.tools.hooks.promise("batch", batch_id, actor.name, url)

        try:
            asked = desk.batches.ask(order, owner=actor.name, promise=promise)
        except StorageError:
            raise _storage_down() from None
        return _accepted(asked)

    @router.delete("/pdf/batches/{batch_id}", response_model=BatchBody)
    def cancel_pdf_batch(actor: Asker, batch_id: str) -> Response:
        """Want a batch no more: at once if it waits, soon if it runs; again is the same."""
        admit(desk.house, actor, "cancel_batch", target=batch_id)
        batch = desk.batch(actor, batch_id)
        note = partial(
            desk.house.commands.accounts.note,
            actor,
            "pdf.cancel_batch",
            queue="pdf_batches",
            site=batch.owner,
            target=batch_id,
        )
        if not desk.batches.cancel(batch, actor=actor.name, witness=note):
            now = desk.batch(actor, batch_id).status.value
            raise Clash(f"it is over: {now}", details={"status": now})
        return sent(_body(desk.batches, desk.batch(actor, batch_id)))


def _looking(router: APIRouter, desk: _Desk) -> None:
    @router.get("/pdf/batches", response_model=BatchPage)
    def list_pdf_batches(
        actor: Asker,
        status: BatchStatus | None = None,
        cursor: Cursor = None,
        limit: Annotated[int, Query(ge=1, le=MOST_BATCHES)] = 50,
    ) -> Response:
        """Your batches, newest first; an admin's list has everybody's."""
        admit(desk.house, actor, "list_batches")
        batches = desk.batches
        found, following = batches.page(
            owner=None if actor.is_admin else actor.name, status=status, limit=limit, cursor=cursor
        )
        return sent(BatchPage(batches=[_body(batches, one) for one in found], cursor=following))

    @router.get("/pdf/batches/{batch_id}", response_model=BatchWhole)
    def get_pdf_batch(
        actor: Asker,
        batch_id: str,
        offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
        limit: Annotated[int, Query(ge=0, le=MOST_RESULTS)] = 100,
    ) -> Response:
        """How a batch stands, and what came of some of its rows."""
        admit(desk.house, actor, "read_batch", target=batch_id)
        batches, batch = desk.batches, desk.batch(actor, batch_id)
        fields = _fields(batches, batch) | {
            "started_at": iso(batches.started_at(batch)),
            "results": batches.results(batch, offset, limit),
        }
        return sent(BatchWhole.model_validate(fields))

    def fetched(request: Request, actor: Asker, batch_id: str) -> Response:
        """The file, whole or in part; 202 while there is none yet."""
        admit(desk.house, actor, "download_batch", target=batch_id)
        batch = desk.batch(actor, batch_id)
        if not batch.is_over:
            return sent(_body(desk.batches, batch), 202, retry_after=str(SOON_S))
        return _delivered(desk, batch, Conditions.of(request))

    path = "/pdf/batches/{batch_id}/download"
    name = "download_pdf_batch"
    router.get(path, response_class=Response, responses=_FETCHED, name=name)(fetched)
    name = "look_at_pdf_batch"
    router.head(path, response_class=Response, responses=_FETCHED, name=name)(fetched)


def _accepted(asked: AskedBatch) -> Response:
    batch = asked.batch
    body = BatchResponse(
        batch_id=batch.batch_id,
        status=batch.status,
        rows=batch.rows,
        created_at=iso(batch.created_at) or "",
    )
    return sent(body, 202 if asked.new else 200, location=f"/pdf/batches/{batch.batch_id}")


def _body(batches: PdfBatchStore, batch: Batch) -> BatchBody:
    return BatchBody.model_construct(**_fields(batches, batch))  # our own values


def _fields(batches: PdfBatchStore, batch: Batch) -> dict[str, Any]:
    progress = batches.progress(batch)
    kept = batch.result if batch.has_file else {}
    return {
        "batch_id": batch.batch_id,
        "status": batch.status,
        "rows": batch.rows,
        "created_at": iso(batch.created_at) or "",
        "template_name": batch.template_name,
        "output": batch.output,
        "made": progress.made,
        "failed": progress.failed,
        "waiting": 0 if batch.is_over else batch.rows - progress.made - progress.failed,
        "finished_at": iso(batch.finished_at),
        "cancel_asked": batch.cancel_asked,
        "download_url": f"/pdf/batches/{batch.batch_id}/download" if batch.has_file else None,
        "file_name": batch.file_name,
        "bytes": kept.get("bytes"),
        "sha256": kept.get("sha256"),
        "pages": kept.get("pages"),
        "error_code": None if batch.has_file else batch.error_code,
        "error_message": None if batch.has_file else batch.error_message,
    }


def _delivered(desk: _Desk, batch: Batch, asked: Conditions) -> Response:
    """As the PDF of a job is delivered, in its own type and under its own name."""
    if batch.status is BatchStatus.FAILED:
        code = batch.error_code or "UNKNOWN"
        why = batch.error_message or "no file came of it"
        return told(Clash(why, code=code, details={"error_code": code}))
    answer = delivered(desk.tools.artifacts, _as_job(batch), asked)
    if "content-disposition" in answer.headers:
        answer.headers["content-disposition"] = attachment(_file_name(batch))
        answer.headers["content-type"] = _TYPES[batch.output]
    return answer


def _as_job(batch: Batch) -> PdfJob:
    """The file of a batch, as what fetches the file of a job looks at it."""
    there = PdfJobStatus.SUCCEEDED if batch.has_file else PdfJobStatus.EXPIRED
    return PdfJob(
        job_id=batch.batch_id,
        job_key="",
        status=there,
        template_name=batch.template_name,
        payload={},
        artifact_key=batch.artifact_key,
        error_code=None,
        retry_count=0,
        created_at=batch.created_at / SECOND_US,
        started_at=None,
        finished_at=None,
        made=batch.result,
    )


def _file_name(batch: Batch) -> str:
    ending = _ENDINGS[batch.output]
    name = (batch.file_name or "").strip(" .") or f"{batch.template_name}-{batch.batch_id[:8]}"
    return name if name.lower().endswith(ending) else name + ending


def _storage_down() -> Unavailable:
    return Unavailable("the storage does not answer: try again", code=STORAGE_DOWN)
