"""The sheet a document is printed on, and how."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

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
