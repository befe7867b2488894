"""The parts of a request that put files into its PDF."""

from typing import Annotated, Final, Literal, Self

import pydantic
from pydantic import Field, StringConstraints

from kesin.web.schemas import Strict, Text
from kesin.workloads.pdf.uploads.store import FILE_ID_PATTERN, PDF_ID_PATTERN

MAX_ATTACHMENTS: Final = 20
FACTUR_X: Final = "factur-x.xml"
_ANY_ID: Final = f"{PDF_ID_PATTERN}|{FILE_ID_PATTERN}"
Relationship = Literal["Source", "Data", "Alternative", "Supplement", "Unspecified"]
Level = Literal["minimum", "basicwl", "basic", "en16931", "extended"]
_SAFE: Final = r'\x00-\x1f\x7f/\\:*?"<>|'
AttachedName = Annotated[Text, StringConstraints(max_length=140, pattern=rf"^[^.{_SAFE}][^{_SAFE}]*$")]
MediaType = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}$")]
Base64 = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]


class AttachmentRequest(Strict):
    """A file to attach to the PDF, given as an upload or as base64."""

    name: AttachedName
    media_type: MediaType
    relationship: Relationship = "Unspecified"
    data_base64: Base64 | None = None
    upload: Annotated[str, StringConstraints(pattern=_ANY_ID)] | None = None

    @pydantic.model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.data_base64 is None) == (self.upload is None):
            raise ValueError("give either data_base64 or upload")
        return self


Attachments = Annotated[list[AttachmentRequest], Field(max_length=MAX_ATTACHMENTS)]


class EinvoiceRequest(Strict):
    """An e-invoice to embed in the PDF: the given XML, or Factur-X made from the variables."""

    format: Literal["factur-x", "ubl", "ubl-tr", "other"]
    level: Level | None = Field(None, description="Factur-X only; defaults to the level of the XML")
    xml_base64: Base64 | None = None
    upload: Annotated[str, StringConstraints(pattern=FILE_ID_PATTERN)] | None = None
    source: Literal["variables"] | None = Field(None, alias="from")
    name: AttachedName | None = Field(None, description=f"{FACTUR_X} for Factur-X; otherwise defaults to invoice.xml")

    @pydantic.model_validator(mode="after")
    def _check_source(self) -> Self:
        given = (self.xml_base64, self.upload, self.source)
        if sum(each is not None for each in given) != 1:
            raise ValueError("give exactly one of xml_base64, upload and from")
        factur_x = self.format == "factur-x"
        if not factur_x and (self.source or self.level):
            raise ValueError("only factur-x has a level, and only factur-x can be made from variables")
        if factur_x and self.name not in (None, FACTUR_X):
            raise ValueError("the name must be factur-x.xml")
        if self.source and self.level not in (None, "en16931"):
            raise ValueError("the level of an e-invoice made from variables is en16931")
        return self

    @property
    def file_name(self) -> str:
        return FACTUR_X if self.format == "factur-x" else self.name or "invoice.xml"
