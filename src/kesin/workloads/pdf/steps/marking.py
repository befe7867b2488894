"""Stamps pages, and sets what a PDF says of itself.

A stamp is drawn as outlines of our font, so no font is embedded for it, and marked as decoration.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pikepdf
from fontTools.pens.basePen import BasePen  # type: ignore[import-untyped]
from fontTools.ttLib import TTFont  # type: ignore[import-untyped]
from pikepdf import AttachedFileSpec, Dictionary, Name, Pdf

_FONT: Final = Path(__file__).parents[1] / "templates/fonts/sans-semibold.woff2"
_SHARE: Final = 0.8  # of the page that a stamp fills
_MAX_HEIGHT: Final = 0.2  # of its letters, of the page


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


def mark(
    pdf: pikepdf.Pdf, information: dict[str, str], steps: Mapping[str, Any], files: Collection[Attachment] = ()
) -> str:
    """Perform the steps ``stamp`` and ``metadata``, if there are any, and embed files.

    Returns the level of the Factur-X invoice among these, if any.
    """
    if stamp := steps.get("stamp"):
        _stamp_pages(pdf, stamp)
    for name, text in steps.get("metadata", {}).items():
        information[f"/{name.capitalize()}"] = text
    return embed_files(pdf, information, files) if files else ""


def missing_characters(text: str) -> list[str]:
    """Return the characters that a stamp cannot have."""
    known = _font().getBestCmap()
    return [character for character in text if ord(character) not in known]


@lru_cache(maxsize=1)
def _font() -> TTFont:
    return TTFont(_FONT)


class _PathPen(BasePen):  # type: ignore[misc]
    """Writes outlines as the operators of a PDF."""

    def __init__(self, glyphs: Any) -> None:
        super().__init__(glyphs)
        self.operators: list[str] = []
        self.left = 0.0  # where the next glyph begins

    def _write(self, operator: str, *points: tuple[float, float]) -> None:
        numbers = (f"{x + self.left:g} {y:g}" for x, y in points)
        self.operators.append(" ".join((*numbers, operator)))

    def _moveTo(self, pt: tuple[float, float]) -> None:  # noqa: N802
        self._write("m", pt)

    def _lineTo(self, pt: tuple[float, float]) -> None:  # noqa: N802
        self._write("l", pt)

    def _curveToOne(self, *pts: tuple[float, float]) -> None:  # noqa: N802
        self._write("c", *pts)

    def _closePath(self) -> None:  # noqa: N802
        self._write("h")


def _stamp_pages(pdf: pikepdf.Pdf, stamp: Mapping[str, Any]) -> None:
    glyphs, names = _font().getGlyphSet(), _font().getBestCmap()
    pen = _PathPen(glyphs)
    for glyph in (glyphs[names[ord(character)]] for character in stamp["text"]):
        glyph.draw(pen)
        pen.left += glyph.width
    width, height = pen.left, _font()["OS/2"].sCapHeight
    form = pdf.make_stream(
        "\n".join(["/GS gs 0.4 g", *pen.operators, "f"]).encode(),
        Type=Name.XObject,
        Subtype=Name.Form,
        BBox=[-height, -height, width + height, 2 * height],
        Resources=Dictionary(ExtGState=Dictionary(GS=Dictionary(ca=stamp["opacity"]))),
    )
    for page in pdf.pages:
        x, y, right, top = map(float, page.cropbox)
        wide, high = abs(right - x), abs(top - y)
        angle = math.radians(stamp["angle"] + page.rotation)
        cos, sin = math.cos(angle), math.sin(angle)
        size = min(
            _SHARE * wide / (abs(cos) * width + abs(sin) * height),
            _SHARE * high / (abs(sin) * width + abs(cos) * height),
            _MAX_HEIGHT * min(wide, high) / height,
        )
        a, b = size * cos, size * sin
        left = (x + right) / 2 - (a * width - b * height) / 2
        bottom = (y + top) / 2 - (b * width + a * height) / 2
        name = page.add_resource(form, Name.XObject, Name.KesinStamp)
        place = " ".join(f"{number:.5f}" for number in (a, b, -b, a, left, bottom))
        page.contents_add(b"q\n", prepend=True)
        page.contents_add(f"\nQ /Artifact BMC q {place} cm {name} Do Q EMC\n".encode())
