"""Responses that are files of an order."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Query
from fastapi.responses import Response

from kesin.foundation.permissions import Actor
from kesin.lifecycle.model import Job
from kesin.web.dependencies import UNCACHED
from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.artifacts import JobArtifacts, paper_head
from kesin.workloads.optiplan.optimizer.output.shapes import PaperHead
from kesin.workloads.optiplan.orders.safe_xlsx import pack_zip
from kesin.workloads.optiplan.service import OrderService

PRIVATE_HEADERS: Final = {"cache-control": UNCACHED}  # orders hold names and phones
CSV: Final = "text/csv"
PDF: Final = "application/pdf"
PTX: Final = "application/octet-stream"
SVG: Final = "image/svg+xml"
XML: Final = "application/xml"
ZIP: Final = "application/zip"
_BINARY: Final = frozenset({PDF, PTX, ZIP})

InLanguage = Annotated[Language, Query(alias="lang")]


def order_artifacts(service: OrderService, actor: Actor, job_id: str) -> JobArtifacts:
    """Return the files of an order that the actor may read."""
    job = service.readable_job(actor, job_id)
    return JobArtifacts(service.workshop.paths(), job, service.progress(job))


def order_head(service: OrderService, actor: Actor, job: Job, language: Language) -> PaperHead:
    """Return what names the order on its papers, as far as the actor may see it."""
    shown = service.shown(actor, job, same_look=True)
    return paper_head(shown, service.customer_name(shown), language)


def sends(description: str, *media_types: str) -> dict[str, Any]:
    content = {
        name: {"schema": {"type": "string"} | ({"format": "binary"} if name in _BINARY else {})} for name in media_types
    }
    responses = {200: {"description": description, "content": content}}
    return {"response_class": Response, "responses": responses}


def file_response(data: bytes, name: str, media_type: str) -> Response:
    """Send a file under a plain name: the program that wrote an XML chose its name."""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._- ") else "_" for c in name)
    disposition = "inline" if media_type == PDF else "attachment"
    shown = {"content-disposition": f'{disposition}; filename="{plain}"'}
    return Response(data, headers=PRIVATE_HEADERS | shown, media_type=media_type)


def files_response(files: Mapping[str, bytes], archive: str, media_type: str) -> Response:
    """Send a file, or an archive of several."""
    if len(files) > 1:
        return file_response(pack_zip(files), archive, ZIP)
    [(name, data)] = files.items()
    return file_response(data, name, media_type)
