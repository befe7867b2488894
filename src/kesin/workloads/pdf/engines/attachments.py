"""Embeds files in a PDF, among them the XML of an e-invoice (ISO 19005-3, Factur-X)."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pikepdf import AttachedFileSpec, Name, Pdf


class Attachment(NamedTuple):
    """A file that a PDF carries, and what it is to the document."""

    name: str
    media_type: str
    relationship: str
    level: str = ""  # of Factur-X, as the metadata of the PDF name it
    data: bytes = b""


def embed_files(pdf: Pdf, about: Mapping[str, str], attachments: Iterable[Attachment]) -> str:
    """Embed files, in place; return the level of Factur-X that the PDF then has, or nothing.

    Their date is that of the document: the same files give the same bytes.
    """
    date, level = about.get("/ModDate") or about.get("/CreationDate", ""), ""
    for each in sorted(attachments):
        texts = {"filename": each.name, "description": each.name, "mime_type": each.media_type}
        file = AttachedFileSpec(pdf, each.data, **texts, mod_date=date, creation_date="")
        file.relationship = Name(f"/{each.relationship}")
        pdf.attachments[each.name] = file  # the catalogue lists it too
        level = level or each.level
    return level
