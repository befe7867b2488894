"""Forms larger than the usual ones: many fields, or a file from somebody's machine.

Browsers send a file as ``multipart/form-data`` (RFC 7578). What they send is simple and bounded
before it comes here, so it is taken apart here, with nothing written to disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.message import Message
from typing import Annotated, Final

from fastapi import Depends, Request

from kesin.foundation.problems import Invalid, TooLarge
from kesin.web.forms import firsts, read_form

MOST_WIDE_BYTES: Final = 1_048_576
MOST_WIDE_FIELDS: Final = 12_000
MOST_PARTS: Final = 64
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{1,70}")
_CUT_SHORT: Final = "the form was cut short on its way: send it again"
_MULTIPART: Final = "multipart/form-data"


@dataclass(frozen=True, slots=True)
class Upload:
    """A form with at most one file."""

    fields: dict[str, str]
    file_name: str = ""
    data: bytes = b""


async def wide_form(request: Request) -> dict[str, str]:
    """The fields of a form with rows in it, each once; raises TooLarge."""
    return firsts(
        await read_form(request, most_bytes=MOST_WIDE_BYTES, most_fields=MOST_WIDE_FIELDS)
    )


async def upload(request: Request) -> Upload:
    """A form with a file; raises Invalid for anything that is none."""
    return read_upload(await request.body(), request.headers.get("content-type", ""))


def read_upload(body: bytes, content_type: str) -> Upload:
    """Take a form apart; the last file counts, and a field without a name does not."""
    try:
        return _taken_apart(body, content_type)
    except ValueError:  # a name in a spelling that no browser uses (RFC 2231) and nobody can read
        raise Invalid(_CUT_SHORT, code="cut_short") from None


def _taken_apart(body: bytes, content_type: str) -> Upload:
    heading = Message()
    heading["content-type"] = content_type
    boundary = heading.get_boundary("")
    if heading.get_content_type() != _MULTIPART or not _BOUNDARY.fullmatch(boundary):
        raise Invalid("choose a file and send it with the form", code="no_file")
    mark = b"\r\n--" + boundary.encode()
    parts = (b"\r\n" + body).split(mark)
    if len(parts) > MOST_PARTS:
        raise TooLarge(f"a form with a file holds at most {MOST_PARTS} fields")
    if len(parts) < 2 or not parts[-1].startswith(b"--"):  # noqa: PLR2004  # before, and the end
        raise Invalid(_CUT_SHORT, code="cut_short")
    fields: dict[str, str] = {}
    file_name, data = "", b""
    for part in parts[1:-1]:
        head, found, value = part.partition(b"\r\n\r\n")
        told = _disposition(head) if found else Message()
        name = told.get_param("name", "", "content-disposition")
        named = told.get_filename()
        if named is not None:
            file_name, data = named, value
        elif isinstance(name, str) and name:
            fields[name] = value.decode("utf-8", "replace")
    return Upload(fields, file_name, data)


def _disposition(head: bytes) -> Message:
    told = Message()
    for line in head.split(b"\r\n"):
        name, _, value = line.decode("utf-8", "replace").partition(":")
        if name.strip().lower() == "content-disposition":
            told["content-disposition"] = value.strip().replace("%22", "_")
    return told


WideForm = Annotated[dict[str, str], Depends(wide_form)]
Uploaded = Annotated[Upload, Depends(upload)]
