"""What makes a PDF of HTML: `chromium.py` and `weasy.py` are two of them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Protocol

from kesin.workloads.pdf.errors import PdfErrorCode, RenderFailed

Format = Literal["A3", "A4", "A5", "Letter", "Legal"]

SIZES_MM: Final[dict[Format, tuple[float, float]]] = {
    "A3": (297, 420),
    "A4": (210, 297),
    "A5": (148, 210),
    "Letter": (215.9, 279.4),
    "Legal": (215.9, 355.6),
}


@dataclass(frozen=True, slots=True)
class Paper:
    """What changes the bytes of a PDF beside its HTML. CSS ``@page`` wins where it is preferred."""

    format: Format = "A4"
    width_mm: float | None = None  # both, in the place of a format
    height_mm: float | None = None
    landscape: bool = False
    margin_mm: tuple[float, float, float, float] = (0, 0, 0, 0)  # top, right, bottom, left
    scale: float = 1.0  # 0.1…2
    page_ranges: str = ""  # "1-3, 5"
    print_background: bool = True
    prefer_css_page_size: bool = True
    header_html: str = ""
    footer_html: str = ""
    tagged: bool = False
    outline: bool = False

    @property
    def size_mm(self) -> tuple[float, float]:
        """Width and height before it is turned."""
        if self.width_mm is not None and self.height_mm is not None:
            return self.width_mm, self.height_mm
        return SIZES_MM[self.format]

    def told(self) -> dict[str, Any]:
        """As it goes into a job's key."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A PDF, and what was noticed while it was made."""

    pdf: bytes
    pages: int
    engine: str
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def sha256(self) -> str:
        """Of the bytes: the same job on the same machine gives the same."""
        return hashlib.sha256(self.pdf).hexdigest()


class Engine(Protocol):
    """Renders one document at a time; safe to call from one thread."""

    name: str

    def render(self, html: str, paper: Paper, *, timeout_s: float) -> Rendered:
        """A PDF of this HTML; raises RenderFailed and nothing else."""
        ...

    def close(self) -> None:
        """Let go of everything, processes included."""
        ...


_RANGE: Final = re.compile(r"(\d{1,6})|(\d{0,6})-(\d{0,6})")


def check_ranges(text: str) -> list[tuple[int, int | None]]:
    """First and last page of each range, None for the end; raises RenderFailed(TEMPLATE_ERROR)."""
    ranges: list[tuple[int, int | None]] = []
    if not text.strip():
        return ranges
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None or part.strip() == "-":
            raise _bad(text, f"{part.strip()!r} is no page or range of pages")
        first = int(found[1] or found[2] or 1)
        last = int(found[1]) if found[1] else int(found[3]) if found[3] else None
        if first < 1 or (last is not None and last < first):
            raise _bad(text, f"{part.strip()!r} runs backwards or starts before page 1")
        ranges.append((first, last))
    return ranges


def pages_in(text: str, pages: int) -> list[int]:
    """The pages that are meant, from 1, each once and in order; all of them for no range."""
    ranges = check_ranges(text)
    if not ranges:
        return list(range(1, pages + 1))
    beyond = [first for first, _ in ranges if first > pages]
    if beyond:
        raise _bad(text, f"the document has {pages} pages")
    meant = {page for first, last in ranges for page in range(first, min(last or pages, pages) + 1)}
    return sorted(meant)


def _bad(text: str, why: str) -> RenderFailed:
    return RenderFailed(
        PdfErrorCode.TEMPLATE_ERROR,
        f"page_ranges {text!r} cannot be printed: {why}",
        details={"page_ranges": text},
    )
