"""A finished PDF over HTTP: whole or in part, under its name, or the reason why there is none."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from kesin.foundation.problems import Clash, Problem, Unavailable
from kesin.workloads.pdf.api.common import told
from kesin.workloads.pdf.errors import PdfErrorCode
from kesin.workloads.pdf.jobs.store import PdfJob, PdfJobStatus
from kesin.workloads.pdf.storage.artifacts import (
    PDF_TYPE,
    PIECE_BYTES,
    Damaged,
    PdfArtifactStore,
    require_sound,
    sound_bytes,
)
from kesin.workloads.pdf.storage.base import BadKey, NotStored, StorageError, attachment

ARTIFACT_DAMAGED: Final = "ARTIFACT_DAMAGED"
ARTIFACT_GONE: Final = "ARTIFACT_GONE"
STORAGE_DOWN: Final = "STORAGE_DOWN"
RETRY_AFTER_S: Final = 15
_RANGE: Final = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)


class Gone(Problem):
    """It was here."""

    status = 410
    code = "gone"


class Unsatisfiable(Problem):
    """Bytes that the PDF does not have."""

    status = 416
    code = "range_not_satisfiable"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a request wants of a PDF, and when."""

    range: str | None = None
    if_range: str | None = None
    if_none_match: str | None = None
    only_head: bool = False

    @classmethod
    def of(cls, request: Request) -> Conditions:
        """As the headers say; a range is GET's alone (RFC 9110, 14.2)."""
        headers, only_head = request.headers, request.method == "HEAD"
        return cls(
            None if only_head else headers.get("range"),
            headers.get("if-range"),
            ",".join(headers.getlist("if-none-match")) or None,
            only_head,
        )


def delivered(
    artifacts: PdfArtifactStore,
    job: PdfJob,
    asked: Conditions | None = None,
    **headers: str,
) -> Response:
    """The PDF of a job that succeeded; for one that did not, the reason."""
    if job.status is PdfJobStatus.FAILED:
        code = job.error_code or PdfErrorCode.UNKNOWN
        return told(
            Clash(
                "no PDF came of it",
                code=code.value,
                details={"error_code": code.value, "job_id": job.job_id},
            ),
            **headers,
        )
    if job.status is PdfJobStatus.EXPIRED:
        return told(Gone("its time is over: ask for it again", code="expired"), **headers)
    try:
        return _answer(artifacts, job, asked or Conditions(), headers)
    except Damaged:
        damaged = Gone(
            "the PDF was damaged where it is kept: ask for it again", code=ARTIFACT_DAMAGED
        )
        return told(damaged, **headers)
    except (NotStored, BadKey):
        gone = Gone("the PDF is not there any more: ask for it again", code=ARTIFACT_GONE)
        return told(gone, **headers)
    except StorageError:
        down = Unavailable("the storage does not answer: try again", code=STORAGE_DOWN)
        return told(down, retry_after=str(RETRY_AFTER_S), **headers)


def _answer(
    artifacts: PdfArtifactStore, job: PdfJob, asked: Conditions, more: dict[str, str]
) -> Response:
    key = job.artifact_key or ""
    sha256 = (job.made or {}).get("sha256")
    etag = f'"{sha256}"' if sha256 else None
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    headers |= {"cache-control": "private, no-cache", "accept-ranges": "bytes"}
    if etag:
        headers["etag"] = etag
        if _is_known(etag, asked.if_none_match):
            return Response(status_code=304, headers=headers)
    file = artifacts.storage.head(key)
    size = file.size
    if sha256 and size != (job.made or {}).get("bytes", size):
        require_sound(artifacts.storage, key, sha256)
    start, end, status = 0, size, 200
    if asked.range is not None and (asked.if_range is None or asked.if_range.strip() == etag):
        part = _part(asked.range, size)
        if part is not None:
            start, end = part
            if start >= end:
                beyond = Unsatisfiable(f"the PDF has {size} bytes")
                return told(beyond, content_range=f"bytes */{size}")
            status = 206
            headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    headers["content-disposition"] = attachment(file_name(job))
    headers["content-length"] = str(end - start)
    if asked.only_head:
        return Response(None, status, headers, media_type=PDF_TYPE)
    if size <= PIECE_BYTES:
        data = sound_bytes(artifacts.storage, key, sha256)
        return Response(data[start:end], status, headers, media_type=PDF_TYPE)
    whole = sha256 if end - start == size else None
    if sha256 and not whole:  # a part does not tell whether it is sound
        artifacts.require_sound(file, sha256)
    first = artifacts.storage.get_range(key, start, min(start + PIECE_BYTES, end))
    pieces = _pieces(artifacts, key, first, (start, end), whole)
    return StreamingResponse(pieces, status, headers, media_type=PDF_TYPE)


def _pieces(
    artifacts: PdfArtifactStore, key: str, piece: bytes, part: tuple[int, int], sha256: str | None
) -> Iterator[bytes]:
    """A large one in pieces, so that many at once take little memory.

    Where all of it is sent, the last piece is held back until all of it is found to be sound; if it
    is not, the answer breaks off, and whoever downloads sees that some is missing.
    """
    made, (at, end) = hashlib.sha256(), part
    while True:
        if not piece:
            raise NotStored(key)
        made.update(piece)
        at += len(piece)
        if at >= end:
            break
        yield piece
        piece = artifacts.storage.get_range(key, at, min(at + PIECE_BYTES, end))
    if sha256 and made.hexdigest() != sha256:
        require_sound(artifacts.storage, key, sha256)
        raise Damaged(key)
    yield piece


def _is_known(etag: str, if_none_match: str | None) -> bool:
    if if_none_match is None:
        return False
    marks = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return etag in marks or "*" in marks


def _part(header: str, size: int) -> tuple[int, int] | None:
    """Where a single range begins and ends (empty: beyond the PDF); None for anything else."""
    found = _RANGE.fullmatch(header.strip())
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        return max(size - int(found[2]), 0), size if int(found[2]) else 0
    start = int(found[1])
    last = int(found[2]) if found[2] else size - 1
    if found[2] and last < start:
        return None
    return start, min(last + 1, size)


def file_name(job: PdfJob) -> str:
    """Under which it is saved."""
    name = str((job.manner or {}).get("file_name") or "").strip(" .")
    if not name:
        return f"{job.template_name or 'document'}-{job.job_id[:8]}.pdf"
    return name if name.lower().endswith(".pdf") else f"{name}.pdf"
