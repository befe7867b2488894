"""Turns the files of a request into uploads, so that its payload holds only their ids."""

from base64 import b64decode
from collections.abc import Collection
from typing import Any, Final
from xml.parsers import expat

from kesin.foundation.messages import Message, MessageError
from kesin.foundation.problems import TooLarge
from kesin.workloads.pdf.einvoices.factur_x import TABLES, invalid, make_factur_x
from kesin.workloads.pdf.einvoices.schemas import EinvoiceRequest
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.limits import MAX_PDF_BYTES
from kesin.workloads.pdf.schemas import PdfJobRequest
from kesin.workloads.pdf.storage.base import StorageError, storage_down
from kesin.workloads.pdf.templating.pictures import PictureLimits
from kesin.workloads.pdf.uploads.checking import check_file
from kesin.workloads.pdf.uploads.store import PdfUploads

MAX_ATTACHED_BYTES: Final = MAX_PDF_BYTES // 2
_KEPT: Final = {"name", "media_type", "relationship"}


def store_attachments(
    uploads: PdfUploads, pictures: PictureLimits, body: PdfJobRequest, owner: str
) -> list[dict[str, Any]]:
    """Store what a PDF is to carry; return what its job says of each file. Raises Problem."""
    entries = []
    for at, each in enumerate(body.attachments):
        upload = each.upload
        if each.data_base64 is not None:
            file = check_file(b64decode(each.data_base64), each.media_type, pictures)
            upload, _ = uploads.store(owner, file.data, file.kind)
        size = uploads.require(owner, upload or "", f"attachments/{at}/upload")
        entries.append({**each.model_dump(include=_KEPT), "upload": upload, "bytes": size})
    if sum(file["bytes"] for file in entries) > MAX_ATTACHED_BYTES:
        most = MAX_ATTACHED_BYTES // 1024**2
        raise TooLarge("the attachments together exceed %(most)s MiB", most=most)
    if body.einvoice is not None:
        entries.append(_store_invoice(uploads, body.einvoice, body.variables, owner))
    return entries


def _store_invoice(
    uploads: PdfUploads, asked: EinvoiceRequest, variables: dict[str, Any], owner: str
) -> dict[str, Any]:
    field, xml = "einvoice/xml_base64", b64decode(asked.xml_base64 or "")
    if asked.source:
        xml = make_factur_x(variables)
    elif asked.upload:
        field = "einvoice/upload"
        if uploads.require(owner, asked.upload, field) > MAX_XML_BYTES:
            raise invalid((field, "is too large for an e-invoice", "xml"))
        try:
            xml = uploads.read(owner, asked.upload)
        except (RenderFailed, StorageError):  # it went since, or is damaged
            raise storage_down() from None
    try:
        guideline = check_xml(xml, TABLES["roots"].get(asked.format, ()))
    except MessageError as problem:
        raise invalid((field, str(problem), "xml")) from None
    level, shown = TABLES["levels"].get(guideline.rpartition("#")[2], ("", ""))
    if asked.format == "factur-x" and not (level and asked.level in (None, level)):
        why = Message("the level of the XML is %(level)s", level=level or "unknown")
        raise invalid(("einvoice/level", why, "level"))
    # The signed XML of UBL-TR is the original; a level without lines says less than the page.
    special = {"ubl-tr": "Source", "minimum": "Data", "basicwl": "Data"}
    relationship = special.get(asked.format) or special.get(level, "Alternative")
    entry = {"name": asked.file_name, "media_type": "text/xml", "relationship": relationship}
    if asked.format == "factur-x":
        entry["level"] = shown
    return {**entry, "upload": uploads.store(owner, xml, "file")[0], "bytes": len(xml)}


MAX_XML_BYTES: Final = 5 * 1024 * 1024
MAX_XML_DEPTH: Final = 100
_GUIDELINE: Final = ["ExchangedDocumentContext", "GuidelineSpecifiedDocumentContextParameter", "ID"]


def check_xml(data: bytes, roots: Collection[str]) -> str:
    """Return the guideline that an invoice of Factur-X names; ``roots``: expected, or none for any.

    Raises MessageError unless it is well-formed, within limits, and has no DTD: so no entities.
    """
    path, first, guideline = list[str](), "", ""

    def start(name: str, _: object) -> None:
        nonlocal first
        path.append(name.rpartition(" ")[2])
        first = first or path[0]
        if len(path) > MAX_XML_DEPTH:
            raise MessageError("the XML is nested deeper than %(most)s levels", most=MAX_XML_DEPTH)

    def read_text(text: str) -> None:
        nonlocal guideline
        if path[1:] == _GUIDELINE:
            guideline += text.strip()

    def refuse(*_: object) -> None:
        raise MessageError("the XML has a DTD: send it without a DOCTYPE")

    if len(data) > MAX_XML_BYTES:
        raise MessageError("the XML is larger than %(most)s MiB", most=MAX_XML_BYTES // 1024**2)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, lambda _: path.pop()
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = read_text, refuse
    try:
        parser.Parse(data, True)  # noqa: FBT003  # it takes no names
    except MessageError:
        raise
    except (expat.ExpatError, LookupError, ValueError) as problem:  # or an unknown encoding
        raise MessageError("the XML is not well-formed: %(problem)s", problem=problem) from None
    if roots and first not in roots:
        raise MessageError("the XML's root must be %(expected)s", expected=" or ".join(roots))
    return guideline
