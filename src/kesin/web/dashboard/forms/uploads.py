"""Large forms: with many fields, or with a file (RFC 7578), limited and parsed in memory."""

import re
from email.message import Message as Headers
from typing import Annotated, Final, NamedTuple

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool

from kesin.foundation.problems import Invalid, TooLarge
from kesin.web.bodies import form_reader, takes_large_bodies

MAX_WIDE_BYTES: Final = 1_048_576
MAX_WIDE_FIELDS: Final = 12_000
MAX_PARTS: Final = 64
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{1,70}")
_CUT_SHORT: Final = "the form arrived incomplete: send it again"
_MULTIPART: Final = "multipart/form-data"


class Upload(NamedTuple):
    """A form with at most one file."""

    fields: dict[str, str]
    file_name: str = ""
    data: bytes = b""


@takes_large_bodies()
async def read_upload(request: Request) -> Upload:
    """A form with a file; raises Invalid for any other body."""
    body, content_type = await request.body(), request.headers.get("content-type", "")
    return await run_in_threadpool(parse_upload, body, content_type)


def parse_upload(body: bytes, content_type: str) -> Upload:
    """Parse a multipart form; the last file wins, and fields without a name are ignored."""
    try:
        return _parse_multipart(body, content_type)
    except ValueError:  # an undecodable RFC 2231 name, which no browser sends
        raise Invalid(_CUT_SHORT, code="cut_short") from None


def _parse_multipart(body: bytes, content_type: str) -> Upload:
    heading = Headers()
    heading["content-type"] = content_type
    boundary = heading.get_boundary("")
    if heading.get_content_type() != _MULTIPART or not _BOUNDARY.fullmatch(boundary):
        raise Invalid("choose a file and send it with the form", code="no_file")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode())
    if len(parts) > MAX_PARTS:
        raise TooLarge("a form with a file may have at most %(most)s fields", most=MAX_PARTS)
    if len(parts) < 2 or not parts[-1].startswith(b"--"):  # noqa: PLR2004  # the preamble and the end
        raise Invalid(_CUT_SHORT, code="cut_short")
    fields: dict[str, str] = {}
    file_name, data = "", b""
    for part in parts[1:-1]:
        head, separator, value = part.partition(b"\r\n\r\n")
        disposition = _parse_disposition(head) if separator else Headers()
        name = disposition.get_param("name", "", "content-disposition")
        part_file_name = disposition.get_filename()
        if part_file_name is not None:
            file_name, data = part_file_name, value
        elif isinstance(name, str) and name:
            fields[name] = value.decode("utf-8", "replace")
    return Upload(fields, file_name, data)


def _parse_disposition(head: bytes) -> Headers:
    disposition = Headers()
    for line in head.split(b"\r\n"):
        name, _, value = line.decode("utf-8", "replace").partition(":")
        if name.strip().lower() == "content-disposition":
            disposition["content-disposition"] = value.strip().replace("%22", "_")
    return disposition


WideForm = Annotated[dict[str, str], Depends(form_reader(MAX_WIDE_BYTES, MAX_WIDE_FIELDS))]
Uploaded = Annotated[Upload, Depends(read_upload)]
