"""Checks XML that a client sent: read as a stream, so nothing in it is expanded or fetched."""

from collections.abc import Collection
from typing import Final
from xml.parsers import expat

from kesin.foundation.messages import MessageError

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
