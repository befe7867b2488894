"""Prints labels as a PDF: one page a label on a roll, or sheets of 3 × 8; black only."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.labels import code128
from kesin.workloads.optiplan.labels.part_labels import PartLabel
from kesin.workloads.optiplan.optimizer.model import size_text
from kesin.workloads.optiplan.optimizer.output.pdf import FAMILY, UNIT_POINTS, draw_shape, new_pdf
from kesin.workloads.optiplan.optimizer.output.shapes import TEXTS, Anchor, Text
from kesin.workloads.optiplan.workshop.saw_rules import LabelLayout, LabelRules

if TYPE_CHECKING:
    from fpdf import FPDF

ON_SHEET: Final = 24
_COLUMNS: Final = 3
_A4: Final = (210.0, 297.0)
_ROLLS: Final[dict[LabelLayout, tuple[float, float]]] = {"100x50": (100, 50), "80x50": (80, 50)}
_ROLL_INSET, _SHEET_INSET = 2.0, 3.0  # a printer misses a sheet's label by a little
_DESIGN_HEIGHT: Final = 46.0  # the sizes below are of a label so high inside its inset
_BLACK: Final = "#000000"
_DOT: Final = 0.125  # of a printer of 203 dpi
_BAR_MODULE: Final = 2 * _DOT
_QR_QUIET: Final = 4  # modules on each side
_QR_MASK: Final = 2  # any is valid; to choose the best takes five times as long
_QR_GAP: Final = 2.0  # mm
_LEAST_SKETCH: Final = 18.0  # mm

_Area = tuple[float, float, float, float]  # left, top, width, height


class _Style(NamedTuple):
    points: float
    bold: bool = False
    shrinks: bool = False  # in a small room; otherwise the text is shortened


_LINES: Final = (  # by baseline in mm
    (3.4, _Style(9, bold=True)),
    (8.4, _Style(12, bold=True)),
    (12.2, _Style(8)),
    (20.6, _Style(24, bold=True, shrinks=True)),
    (25.0, _Style(8.5)),
    (28.6, _Style(8.5)),
    (32.4, _Style(8.5, bold=True, shrinks=True)),
)
_COUNT, _CAPTION, _BAND = _Style(11, bold=True), _Style(7, shrinks=True), _Style(6)
_GRAIN: Final = _Style(16)


@dataclass(frozen=True, slots=True)
class LabelPrint:
    """How labels are printed."""

    rules: LabelRules
    language: Language
    scan_url: str  # the address that opens an id, without the id
    first: int = 1  # free label of a sheet, from 1 to 24


@dataclass(frozen=True, slots=True)
class Label:
    """What is on a label, in its language."""

    id: str
    caption: str  # below the bars
    count: str
    lines: tuple[str, ...]  # from the top
    size: tuple[int, int]  # as it lies on the board
    bands: tuple[str, ...]  # on its left, right, lower and upper side
    has_grain: bool


def print_labels(labels: Iterable[Label], how: LabelPrint) -> bytes:
    rules, first = how.rules, how.first
    sheet = (rules.pitch_x_mm, rules.pitch_y_mm)
    width, height = map(float, _ROLLS.get(rules.layout, sheet))
    page, on_page, inset = (width, height), 1, _ROLL_INSET
    left = top = 0.0
    if rules.layout not in _ROLLS:
        page, on_page, inset = _A4, ON_SHEET, _SHEET_INSET
        left, top = float(rules.margin_left_mm), float(rules.margin_top_mm)
    pdf = new_pdf(TEXTS[how.language]["labels"], how.language, "mm", page)
    for number, label in enumerate(labels, first - 1):
        if number % on_page == 0 or number == first - 1:
            pdf.add_page()
        row, column = divmod(number % on_page, _COLUMNS)
        x, y = left + column * width + inset, top + row * height + inset
        drawing = _Drawing(pdf, x, y, width - 2 * inset, height - 2 * inset)
        drawing.label(label, how.scan_url)
    return bytes(pdf.output())


def part_label(label: PartLabel, language: Language) -> Label:
    texts = TEXTS[language]
    part, (up, lo, sx, dx) = label.part, label.bands
    following = f" → {texts['banding']}" if any(label.bands) else ""
    where = ((texts["board"], label.board), (texts["cut_number"], str(label.cut or "")), (texts["drill"], label.drill))
    lines = (
        " · ".join(filter(None, (label.head.order, label.head.customer))),
        part.name,
        label.notes,
        label.finished,
        f"{texts['cut']} {size_text(part.length, part.width)}{following}",
        label.material,
        " · ".join(f"{name} {value}" for name, value in where if value),
    )
    return Label(
        id=str(label.piece),
        caption=f"{label.piece}   {label.head.date}",
        count=f"{label.piece.piece} {texts['of']} {part.quantity}",
        lines=lines,
        size=part.size(turned=label.turned),
        bands=(up, lo, sx, dx) if label.turned else (sx, dx, lo, up),
        has_grain=not part.may_turn,
    )


class _Drawing:
    """The printable part of a label."""

    def __init__(self, pdf: "FPDF", x: float, y: float, width: float, height: float) -> None:
        self._pdf = pdf
        self._x, self._y, self._width, self._height = x, y, width, height
        self._scale = min(1.0, height / _DESIGN_HEIGHT)

    def label(self, label: Label, scan_url: str) -> None:
        x, y, s = self._x, self._y, self._scale
        qr = self._qr(24 * s, f"{scan_url}{label.id}")
        room = self._width - qr - _QR_GAP
        count = self._text(x + room, y + 3.4 * s, label.count, room, _COUNT, anchor="end")
        rooms = (room - count - 2, *[room] * len(label.lines[1:]))
        for text, free, (at, style) in zip(label.lines, rooms, _LINES, strict=True):
            self._text(x, y + at * s, text, free, style)
        bars_y = y + 34.4 * s
        beside = self._width - self._bars(bars_y, self._height - 38 * s, label)
        narrow = beside < _LEAST_SKETCH * s
        width = qr if narrow else min(qr, beside)
        top, bottom = y + qr + 1, bars_y - 1 if narrow else y + self._height
        self._sketch(label, (x + self._width - width, top, width, bottom - top))

    def _text(
        self,
        x: float,
        y: float,
        text: str,
        room: float,
        style: _Style,
        *,
        anchor: Anchor = "start",
        turned: bool = False,
    ) -> float:
        """Write a text into a room, shortened if need be, or smaller; returns its length."""
        pdf, points = self._pdf, style.points * self._scale
        pdf.set_font(FAMILY, "B" if style.bold else "", points)
        length = pdf.get_string_width(text)
        if style.shrinks and length > room:
            points *= room / length
        elif length > room:
            lengths = map(pdf.get_string_width, (f"{text[:end]}…" for end in range(len(text))))
            end = sum(1 for _ in takewhile(room.__ge__, lengths)) - 1
            text = f"{text[:end].rstrip()}…" if end > 0 else ""
        draw_shape(pdf, Text(x, y, text, points / UNIT_POINTS, _BLACK, anchor, style.bold, turned))
        return min(length, room)

    def _fill(self, rects: Iterable[_Area]) -> None:
        """Fill many rectangles as one path: far faster than each alone."""
        pdf = self._pdf
        k, top = pdf.k, pdf.h
        path = " ".join(f"{x * k:.2f} {(top - y - h) * k:.2f} {w * k:.2f} {h * k:.2f} re" for x, y, w, h in rects)
        pdf._out(f"0 g {path} f")  # noqa: SLF001 - no public way

    def _bars(self, y: float, height: float, label: Label) -> float:
        """Draw the bars if they fit, and the caption below; returns the length."""
        widths = code128.bars(label.id)
        length = (sum(widths) + 2 * code128.QUIET_MODULES) * _BAR_MODULE
        left = _DOT * round(self._x / _DOT) + code128.QUIET_MODULES * _BAR_MODULE
        starts = accumulate(widths, initial=0)
        bars = [
            (left + start * _BAR_MODULE, y, width * _BAR_MODULE, height)
            for start, width in zip(starts, widths, strict=False)
        ]
        if length <= self._width:
            self._fill(bars[::2])
        below, room = y + height + 2.6 * self._scale, min(length, self._width)
        self._text(self._x, below, label.caption, room, _CAPTION)
        return length

    def _qr(self, room: float, text: str) -> float:
        """Draw a QR code in the upper right corner; returns its side."""
        import segno
        from segno.utils import matrix_to_lines  # type: ignore[attr-defined]

        matrix = segno.make(text, error="m", micro=False, mask=_QR_MASK, boost_error=False).matrix
        module = max(int(room / (len(matrix) + 2 * _QR_QUIET) / _DOT) * _DOT, 2 * _DOT)
        side = len(matrix) * module
        left = self._x + self._width - side  # the label's margin is quiet, too
        self._fill(
            (left + start * module, self._y + row * module, (end - start) * module, module)
            for (start, row), (end, _) in matrix_to_lines(matrix, 0, 0)
        )
        return side

    def _sketch(self, label: Label, area: _Area) -> None:
        """Draw the piece as it lies on the board: banded sides thick, with their bands' names."""
        s = self._scale
        x, y, width, height = area
        along, across = label.size
        edge = 2.6 * s  # for the names
        inner = (max(width - 2 * edge, 4), max(height - 2 * edge, 3))
        scale = min(inner[0] / along, inner[1] / across)
        w, h = max(along * scale, 2.5), max(across * scale, 2.5)
        x0, y0 = x + (width - w) / 2, y + (height - h) / 2
        pen, middle, centre = 0.9 * s, x0 + w / 2, y0 + h / 2
        self._pdf.set_line_width(0.2)
        self._pdf.rect(x0, y0, w, h)
        sides = (
            ((x0, y0, pen, h), x0 - 0.6 * s, centre),
            ((x0 + w - pen, y0, pen, h), x0 + w + 2.2 * s, centre),
            ((x0, y0 + h - pen, w, pen), middle, y0 + h + 2.2 * s),
            ((x0, y0, w, pen), middle, y0 - 0.6 * s),
        )
        for band, (side, at_x, at_y) in zip(label.bands, sides, strict=True):
            if band:
                self._fill([side])
                turned = at_y == centre
                room = height if turned else inner[0] if any(label.bands[:2]) else width
                self._text(at_x, at_y, band, room, _BAND, anchor="middle", turned=turned)
        if label.has_grain and w > 5:  # noqa: PLR2004 - room for an arrow
            self._text(middle, centre + 1.8 * s, "↔", w, _GRAIN, anchor="middle")
