"""Download of a finished PDF: whole or a range, or the reason why there is none."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from fastapi import Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from starlette.datastructures import Headers

from kesin.foundation.problems import Problem, RequestConflict
from kesin.web.dependencies import problem_response
from kesin.workloads.pdf.api.common import format_time
from kesin.workloads.pdf.errors import PdfErrorCode
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStatus
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


class FileGone(Problem, status=410, code="gone"):
    """The file existed and was deleted."""


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


def file_expired() -> FileGone:
    return FileGone("it has expired: request it again", code="expired")


def download_response(
    artifacts: PdfArtifactStore,
    download: Download | Problem,
    request: Request | None = None,
    **headers: str,
) -> Response:
    if isinstance(download, Problem):
        return problem_response(download, **headers)
    try:
        return _file_response(artifacts, download, request, headers)
    except (base.NotStored, base.BadKey) as problem:
        code, why = ARTIFACT_GONE, "the PDF no longer exists: request it again"
        if isinstance(problem, ArtifactDamaged):
            code, why = ARTIFACT_DAMAGED, "the stored PDF is damaged: request it again"
        return problem_response(FileGone(why, code=code), **headers)
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


def file_name(
    wanted: object, template: str, created_at: str, item_id: str, suffix: str = ".pdf"
) -> str:
    """Return the name under which a client saves the file: the requested one, or one of its own."""
    name = str(wanted or "").strip(" .")
    if not name:  # the end of an id is random, its beginning the time
        name = f"{template or 'document'}-{created_at[:10]}-{item_id[-8:]}"
    return name if name.lower().endswith(suffix) else name + suffix
