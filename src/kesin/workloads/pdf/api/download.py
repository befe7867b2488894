"""Downloads of a finished PDF, whole or a range, also by a signed link; or why there is none."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.datastructures import Headers

from kesin.foundation.clock import iso
from kesin.foundation.ids import is_id
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem, RequestConflict
from kesin.lifecycle.budget import SECOND_US
from kesin.web.auth import PUBLIC_ROUTE, GuardedRouter, address_of
from kesin.web.dependencies import UNCACHED, SignedInActor, json_response, problem_response
from kesin.web.schemas import Strict
from kesin.workloads.pdf import links
from kesin.workloads.pdf.api.common import FILE_SENT, find_owned_job, format_time, note_download, require_access
from kesin.workloads.pdf.errors import Gone, PdfErrorCode
from kesin.workloads.pdf.jobs.store import UNFINISHED, PdfJob, PdfJobStatus
from kesin.workloads.pdf.services import PdfServiceLoader
from kesin.workloads.pdf.storage import artifacts as stored
from kesin.workloads.pdf.storage import base
from kesin.workloads.pdf.storage.artifacts import CHUNK_BYTES, ArtifactDamaged, PdfArtifactStore

ARTIFACT_DAMAGED: Final = "ARTIFACT_DAMAGED"
ARTIFACT_GONE: Final = "ARTIFACT_GONE"
REDIRECT_S: Final = 60  # for which an address of a bucket is valid
_RANGE: Final = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)


def download_responses(kind: str, media_types: Iterable[str], waiting: type) -> dict[str, Any]:
    """Describe the responses of a download; ``waiting`` is the body while there is no file yet."""
    file = {"schema": {"type": "string", "format": "binary"}}
    content = dict.fromkeys(media_types, file)
    responses = {
        200: {"content": content, "description": f"The {kind}"},
        202: {"model": waiting, "description": "Not ready; Retry-After says when to try again"},
        206: {"content": content, "description": "The requested range"},
        304: {"description": "Not modified: your copy is current"},
        410: {"description": "The file no longer exists"},
        416: {"description": "The range is outside the file"},
    }
    return {"response_class": Response, "responses": responses}


class RangeNotSatisfiable(Problem, status=416, code="range_not_satisfiable"):
    """The requested range lies outside the PDF."""


class Download(NamedTuple):
    """A file in the storage, and how a client gets it."""

    key: str
    name: str  # under which it is saved
    result: Mapping[str, Any]  # its sha256 and bytes, as far as they are known
    media_type: str = stored.PDF_TYPE
    redirect: bool = False  # to an address of the bucket, if it is in one


def job_download(job: PdfJob) -> Download | Problem:
    """Return the PDF of a succeeded job; for any other job, the reason why there is none."""
    if job.status is PdfJobStatus.FAILED:
        code = (job.error_code or PdfErrorCode.UNKNOWN).value
        details = {"error_code": code, "job_id": job.job_id}
        why = job.public_message or "it produced no PDF"
        return RequestConflict(why, code=code, details=details)
    if job.status is PdfJobStatus.EXPIRED:
        return file_expired()
    wanted = (job.metadata or {}).get("file_name")
    name = file_name(wanted, job.template_name, format_time(job.created_at), job.job_id)
    return Download(job.artifact_key or "", name, job.result or {})


def file_expired() -> Gone:
    return Gone("it has expired: request it again", code="expired")


def download_response(
    artifacts: PdfArtifactStore, download: Download | Problem, request: Request | None = None, **headers: str
) -> Response:
    if isinstance(download, Problem):
        return problem_response(download, **headers)
    try:
        return _file_response(artifacts, download, request, headers)
    except (base.NotStored, base.BadKey) as problem:
        code, why = ARTIFACT_GONE, "the PDF no longer exists: request it again"
        if isinstance(problem, ArtifactDamaged):
            code, why = ARTIFACT_DAMAGED, "the stored PDF is damaged: request it again"
        return problem_response(Gone(why, code=code), **headers)
    except base.StorageError:
        return problem_response(base.storage_down(), retry_after="15", **headers)


def _file_response(
    artifacts: PdfArtifactStore, download: Download, request: Request | None, extra: dict[str, str]
) -> Response:
    key, sha256 = download.key, download.result.get("sha256")
    etag = f'"{sha256}"' if sha256 else None
    given = Headers() if request is None else request.headers
    only_head = request is not None and request.method == "HEAD"
    headers = {name.replace("_", "-"): value for name, value in extra.items()}
    headers |= {"cache-control": "private, no-cache", "accept-ranges": "bytes"}
    if etag:
        headers["etag"] = etag
        if _etag_matches(etag, ",".join(given.getlist("if-none-match"))):
            return Response(status_code=304, headers=headers)
    file = artifacts.storage.head(key)
    size = file.size
    if sha256 and size != download.result.get("bytes", size):
        stored.verify_artifact(artifacts.storage, key, sha256)
    disposition = {"content-disposition": base.attachment_header(download.name)}
    redirects = download.redirect and not only_head
    if redirects and (url := artifacts.storage.presign(key, REDIRECT_S)) is not None:
        return RedirectResponse(url, 302, {**disposition, "cache-control": "no-store"})
    start, end, status = 0, size, 200
    unchanged = "if-range" not in given or given["if-range"].strip() == etag
    # A range counts for GET only (RFC 9110, 14.2).
    part = None if only_head or not unchanged else _parse_range(given.get("range", ""), size)
    if part is not None:
        (start, end), status = part, 206
        if start >= end:
            beyond = RangeNotSatisfiable(f"the PDF is {size} bytes")
            return problem_response(beyond, content_range=f"bytes */{size}")
        headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    headers |= disposition
    headers["content-length"] = str(end - start)
    if only_head:
        return Response(None, status, headers, download.media_type)
    if size <= CHUNK_BYTES:
        data = stored.read_verified(artifacts.storage, key, sha256)
        return Response(data[start:end], status, headers, download.media_type)
    expected_sha256 = sha256 if end - start == size else None
    if sha256 and not expected_sha256:  # the checksum covers the whole file, not a range
        artifacts.verify(file, sha256)
    first = artifacts.storage.get_range(key, start, min(start + CHUNK_BYTES, end))
    pieces = _stream_pieces(artifacts.storage, key, first, (start, end), expected_sha256)
    return StreamingResponse(pieces, status, headers, download.media_type)


def _stream_pieces(
    storage: base.StorageBackend, key: str, piece: bytes, part: tuple[int, int], sha256: str | None
) -> Iterator[bytes]:
    """Yield a large PDF in pieces, the last only if the checksum matches: damage shows as a cut."""
    digest, (at, end) = hashlib.sha256(), part
    while True:
        if not piece:
            raise base.NotStored(key)
        digest.update(piece)
        at += len(piece)
        if at >= end:
            break
        yield piece
        piece = storage.get_range(key, at, min(at + CHUNK_BYTES, end))
    if sha256 and digest.hexdigest() != sha256:
        stored.verify_artifact(storage, key, sha256)
        raise ArtifactDamaged(key)
    yield piece


def _etag_matches(etag: str, if_none_match: str) -> bool:
    etags = [value.strip().removeprefix("W/") for value in if_none_match.split(",")]
    return etag in etags or "*" in etags


def _parse_range(header: str, size: int) -> tuple[int, int] | None:
    """Parse a single range to start and end (empty: beyond the PDF); None for anything else."""
    match = _RANGE.fullmatch(header.strip())
    if match is None or match[1] == match[2] == "":
        return None
    if match[1] == "":
        return max(size - int(match[2]), 0), size if int(match[2]) else 0
    start = int(match[1])
    last = int(match[2]) if match[2] else size - 1
    if match[2] and last < start:
        return None
    return start, min(last + 1, size)


def file_name(wanted: object, template: str, created_at: str, item_id: str, suffix: str = ".pdf") -> str:
    """Return the name under which a client saves the file: the requested one, or one of its own."""
    name = str(wanted or "").strip(" .")
    if not name:  # the end of an id is random, its beginning the time
        name = f"{template or 'document'}-{created_at[:10]}-{item_id[-8:]}"
    return name if name.lower().endswith(suffix) else name + suffix


_FILE: Final = {"application/pdf": {"schema": {"type": "string", "format": "binary"}}}
_FOLLOWED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": _FILE, "description": "The PDF"},
    302: {"description": "Redirect to the PDF in its bucket; the address is valid for a minute"},
    410: {"description": "The link or its PDF has expired, or the link has no downloads left"},
}


class LinkRequest(Strict, frozen=True):
    """A request for a link to a PDF."""

    expires_in: int = Field(links.DEFAULT_LINK_S, ge=1, le=links.MAX_LINK_S, description="seconds, at most a week")
    max_downloads: int | None = Field(
        None, ge=1, le=1_000_000, description="how many times the link works; unlimited if omitted"
    )


class LinkBody(BaseModel):
    """A link to a PDF."""

    url: str = Field(description="absolute if KESIN_PUBLIC_URL is set, otherwise a path")
    expires_at: str = Field(description="never after the PDF itself expires")
    max_downloads: int | None


def new_link(loader: PdfServiceLoader, actor: Actor, job_id: str, body: LinkRequest) -> LinkBody:
    """Create a link to the PDF of a job, and write it to the audit log; raises Problem."""
    require_access(loader.context, actor, "link", target=job_id)
    services = loader.services
    job = find_owned_job(services.jobs, actor, job_id)
    if job.status in UNFINISHED:
        raise RequestConflict("there is no PDF yet: wait until the job has succeeded")
    if isinstance(problem := job_download(job), Problem):
        raise problem
    now_s, most = services.jobs.queue.now() / SECOND_US, body.max_downloads
    url, ends_s = services.links.create(job, body.expires_in, most, since_s=now_s)
    link = LinkBody(url=url, expires_at=iso(ends_s * SECOND_US) or "", max_downloads=most)
    note, details = loader.context.commands.accounts.note, link.model_dump(exclude={"url"})
    note(actor, "pdf.link", queue="pdf", target=job_id, details=details)
    return link


def links_router(loader: PdfServiceLoader) -> APIRouter:
    router, context = GuardedRouter(tags=["pdf"]), loader.context

    @router.post("/pdf/jobs/{job_id}/links", status_code=201, response_model=LinkBody)
    def create_pdf_link(actor: SignedInActor, job_id: str, body: LinkRequest) -> Response:
        """Create a temporary link that anyone can use to download a job's PDF."""
        return json_response(new_link(loader, actor, job_id, body), 201, cache_control=UNCACHED)

    public: dict[str, Any] = {
        "response_class": Response, "responses": _FOLLOWED, "openapi_extra": PUBLIC_ROUTE,
    }  # fmt: skip

    @router.head(links.PATH, **public, name="look_at_pdf_link")
    @router.get(links.PATH, **public)
    def follow_pdf_link(request: Request, job_id: str, query: Annotated[links.LinkQuery, Query()]) -> Response:
        """The PDF, without signing in; if the link has a download limit, always the whole file."""
        services, only_head = loader.services, request.method == "HEAD"
        found = services.jobs.get_job(job_id) if is_id(job_id) else None
        job = services.links.require_valid(found, query)
        part = request if only_head or not query.n else None
        download = job_download(job)
        if isinstance(download, Download):
            download = download._replace(redirect=True)
        response = download_response(services.artifacts, download, part)
        if query.n and not only_head and response.status_code in FILE_SENT:
            services.links.count(job_id, query.n)
        actor = replace(request.state.actor, address=address_of(request))
        return note_download(context, actor, "follow_link", job_id, response, request.method)

    return router
