"""The route for files that jobs use."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response

from kesin.foundation.clock import iso
from kesin.foundation.permissions import Actor
from kesin.web.auth import GuardedRouter, service_of
from kesin.web.bodies import takes_large_bodies
from kesin.web.dependencies import MediaType, SignedInActor, json_response
from kesin.workloads.pdf.api.common import require_access
from kesin.workloads.pdf.schemas import UploadBody
from kesin.workloads.pdf.services import PdfServiceLoader, picture_limits

_FILE: Final[dict[str, Any]] = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
_BODY: Final = {"requestBody": {"required": True, "content": _FILE}}


def uploads_router(loader: PdfServiceLoader) -> APIRouter:
    router, context = GuardedRouter(tags=["pdf"]), loader.context

    @takes_large_bodies(context.settings.pdf_upload_mb * 1_000_000, "own_body_bytes")
    async def read_file(request: Request) -> bytes:
        return await request.body()

    @router.post("/pdf/uploads", status_code=201, response_model=UploadBody, openapi_extra=_BODY)
    async def upload_file(
        request: Request,
        actor: SignedInActor,
        media_type: MediaType,
        data: Annotated[bytes, Depends(read_file)],
    ) -> Response:
        """Upload a file; until it expires, requests can refer to it by the returned id.

        A PDF is checked, and its scripts, XFA forms, attachments and external links are removed.
        """
        return await service_of(request).imports.run(upload, actor, data, media_type)

    def upload(actor: Actor, data: bytes, media_type: str) -> Response:
        from kesin.workloads.pdf.uploads.checking import check_file  # it loads slowly

        require_access(context, actor, "upload")
        file = check_file(data, media_type, picture_limits(context.settings))
        upload_id, expires_at = loader.services.uploads.store(actor.name, file.data, file.kind)
        body = UploadBody(
            upload_id=upload_id,
            media_type=file.media_type,
            bytes=len(file.data),
            sha256=upload_id.rpartition("-")[2],
            pages=file.pages,
            expires_at=iso(expires_at) or "",
        )
        return json_response(body, 201)

    return router
