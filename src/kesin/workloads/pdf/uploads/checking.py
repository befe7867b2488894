"""Checks a file of a client before it is stored: the bytes decide what it is, not its name."""

import re
from typing import Final, NamedTuple

from kesin.foundation.problems import Invalid
from kesin.workloads.pdf.channel import ChildLimits, run_in_child
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.templating.pictures import PictureLimits, picture_type
from kesin.workloads.pdf.uploads.store import Kind

UPLOAD_REFUSED: Final = "UPLOAD_REFUSED"
CHILD_MODULE: Final = "kesin.workloads.pdf.uploads.clean_child"
LIMITS: Final = ChildLimits()
OTHER_TYPE: Final = "application/octet-stream"
_PDF_TYPE: Final = "application/pdf"
_SIGNATURE_BYTES: Final = 1024  # of a file, in which a PDF names itself
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}")


class CheckedFile(NamedTuple):
    """A file that may be stored."""

    kind: Kind
    data: bytes
    media_type: str
    pages: int | None = None


def check_file(data: bytes, media_type: str, pictures: PictureLimits) -> CheckedFile:
    """Return what is to be stored of a file that was sent as ``media_type``; raises Invalid.

    A PDF loses what is active in it. Others are stored as they are.
    """
    try:
        if b"%PDF-" in data[:_SIGNATURE_BYTES]:
            head, cleaned = run_in_child(CHILD_MODULE, {}, data, LIMITS)
            return CheckedFile("pdf", cleaned, _PDF_TYPE, head["pages"])
        if pictures.measure(data):
            return CheckedFile("file", data, picture_type(data))
    except RenderFailed as problem:
        raise _refused(problem.message) from None
    if not data or media_type == _PDF_TYPE or media_type.startswith("image/"):
        raise _refused("the file is not what its Content-Type says")
    known = _MEDIA_TYPE.fullmatch(media_type)
    return CheckedFile("file", data, media_type if known else OTHER_TYPE)


def _refused(message: str) -> Invalid:
    return Invalid(message, code=UPLOAD_REFUSED)
