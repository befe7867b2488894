"""Labels to print, and what can be read on the paper again."""

import io
from collections.abc import Iterator
from typing import Any

import pypdfium2
import zxingcpp

from kesin.workloads.optiplan.labels.ids import PieceId
from kesin.workloads.optiplan.labels.part_labels import PartLabel
from kesin.workloads.optiplan.labels.printing import LabelPrint, part_label, print_labels
from kesin.workloads.optiplan.optimizer.model import Band, CutPart
from kesin.workloads.optiplan.optimizer.output.shapes import PaperHead
from kesin.workloads.optiplan.workshop.saw_rules import LabelLayout, LabelRules

SCAN_URL = "https://kesin.example.com/dashboard/optiplan/scan/"
LONG = "Üst dolap için sağ yan panel, ğüşıöç ÇĞİÖŞÜ " * 6
POINTS_PER_MM = 72 / 25.4


def label(piece: int = 1, of: int = 3, **other: Any) -> PartLabel:
    part = CutPart("Raf", 59_800, 44_960, of, 1, 60_000, 45_000, (Band("2 mm", 200), *[None] * 3))
    values = {
        "piece": PieceId("B7Q4TXA7K2", 12, piece),
        "head": PaperHead("S-1 r2", "Güneş Ahşap", "19.11.2026"),
        "part": part,
        "bands": ("Meşe 2 mm", "", "", ""),
        "material": "18 mm · MDF · Açık Meşe",
        "drill": "D-104",
        "notes": "Mutfak",
        "layout": 1,
        "board": "3/7",
        "cut": 12,
        "turned": False,
    }
    return PartLabel(**{**values, **other})


def how(layout: LabelLayout = "100x50", first: int = 1, **rules: Any) -> LabelPrint:
    return LabelPrint(LabelRules(layout=layout, **rules), "tr", SCAN_URL, first)


def printed(how: LabelPrint, *labels: PartLabel) -> bytes:
    return print_labels([part_label(each, how.language) for each in labels], how)


def size_of(layout: LabelLayout) -> tuple[float, float]:
    return {"100x50": (100, 50), "80x50": (80, 50), "a4-3x8": (70, 37)}[layout]


def pages(data: bytes) -> list[pypdfium2.PdfPage]:
    return list(pypdfium2.PdfDocument(io.BytesIO(data)))


def text_of(page: pypdfium2.PdfPage) -> str:
    text: str = page.get_textpage().get_text_range()
    return text


def codes(page: pypdfium2.PdfPage, layout: LabelLayout = "100x50") -> dict[str, str]:
    """What a scanner reads on the page's first label as a printer of 203 or 300 dots an inch prints it."""
    dpi = 300 if layout == "a4-3x8" else 203
    width, height = (side * POINTS_PER_MM for side in size_of(layout))
    rest = (0, max(page.get_height() - height - 1, 0), max(page.get_width() - width, 0), 0)
    picture = page.render(scale=dpi / 72, crop=rest).to_pil()
    return {str(code.format.name): code.text for code in zxingcpp.read_barcodes(picture)}


def text_boxes(page: pypdfium2.PdfPage) -> Iterator[tuple[float, float, float, float]]:
    """Where texts are, in millimetres: left, bottom, right, top."""
    for item in page.get_objects(filter=[1]):  # texts
        left, bottom, right, top = (side / POINTS_PER_MM for side in item.get_bounds())
        yield left, bottom, right, top
