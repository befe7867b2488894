"""Checks a file of a client before it is stored: the bytes decide what it is, not its name.

A PDF loses what is active in it. It may be built to take all memory, or to run forever, so this
happens in a process with limits, which is this module.
"""

import io
import re
from typing import Any, Final, Literal, NamedTuple

import pikepdf
from pikepdf.sanitize import Sanitizer

from kesin.foundation.problems import Invalid
from kesin.workloads.pdf.channel import ChildLimits, Reply, run_in_child, serve_task
from kesin.workloads.pdf.engines.archive import DAMAGED, SAVED, drop_id
from kesin.workloads.pdf.errors import RenderFailed, TemplateError
from kesin.workloads.pdf.limits import MAX_UPLOADED_OBJECTS, check_pages
from kesin.workloads.pdf.templating.pictures import PictureLimits, picture_type

LIMITS: Final = ChildLimits(cpu_s=10, wall_s=60, memory_bytes=1024 * 1024 * 1024)
_MODULE: Final = "kesin.workloads.pdf.uploads.checking"
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}")


class CheckedFile(NamedTuple):
    """A file that may be stored."""

    kind: Literal["pdf", "file"]  # as its store has them, which this process need not import
    data: bytes
    media_type: str
    pages: int | None = None


def check_file(data: bytes, media_type: str, pictures: PictureLimits) -> CheckedFile:
    """Return what is to be stored of a file that was sent as ``media_type``; raises Invalid."""
    problem = "the file's contents do not match its Content-Type"
    try:
        if b"%PDF-" in data[:1024]:  # where a PDF names itself
            head, cleaned = run_in_child(_MODULE, {}, data, LIMITS)
            return CheckedFile("pdf", cleaned, "application/pdf", head["pages"])
        if pictures.measure(data):
            return CheckedFile("file", data, picture_type(data))
        if data and not media_type.startswith(("image/", "application/pdf")):
            known = _MEDIA_TYPE.fullmatch(media_type)
            return CheckedFile("file", data, media_type if known else "application/octet-stream")
    except RenderFailed as failure:
        problem = failure.message
    raise Invalid(problem, code="UPLOAD_REFUSED")


def clean_pdf(_: dict[str, Any], data: bytes) -> Reply:
    """Return the pages and the PDF without what is active: the same for the same bytes."""
    out, pages, objects = io.BytesIO(), 0, 0
    try:
        with pikepdf.open(io.BytesIO(data)) as pdf:
            encrypted, objects, pages = pdf.is_encrypted, len(pdf.objects), len(pdf.pages)
            cleaner = Sanitizer().remove_javascript().remove_external_access().remove_attachments()
            cleaner.remove_multimedia().remove_private_app_data().remove_collection()
            cleaner.remove_web_capture().remove_search_index().remove_thumbnails().apply(pdf)
            if "/XFA" in pdf.Root.get("/AcroForm", {}):
                del pdf.Root.AcroForm.XFA
            drop_id(pdf)
            pdf.save(out, **SAVED, deterministic_id=not encrypted)
    except pikepdf.PasswordError:
        encrypted = True
    except (*DAMAGED, RecursionError) as problem:
        raise TemplateError("the PDF cannot be read: %(problem)s", problem=problem) from None
    if encrypted:
        raise TemplateError("the PDF is encrypted: send it without a password")
    check_pages(pages)
    if objects > MAX_UPLOADED_OBJECTS:
        why = "the PDF has more than %(most)s objects"
        raise TemplateError(why, most=MAX_UPLOADED_OBJECTS)
    return {"pages": pages}, out.getvalue()


if __name__ == "__main__":
    serve_task(clean_pdf)
