"""Draws a board: type as large as fits, numbers for small pieces, gaps as wide as the blade."""

from collections import Counter
from dataclasses import astuple
from itertools import cycle
from typing import Final, NamedTuple

from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.output import shapes
from kesin.workloads.optiplan.optimizer.output.shapes import FAINT, INK, NO_HEAD, QUIET, TEXTS, PaperHead
from kesin.workloads.optiplan.optimizer.output.statistics import board_numbers, trim_steps

LEFT, TOP = 74.0, 130.0  # of a board on its page
BELOW: Final = 66.0  # for the length and the bands
BLADE_FILL, TRIM_FILL, SCRAP_FILL, KEPT_FILL = "#3a3f46", "#dcd8cf", "#f3f3f1", "#e9f5ec"
TINTS: Final = (  # of the parts, in turn
    *("#fff4dc", "#e4eefb", "#fbe6e2", "#e9e4f7", "#dff3f1", "#f6f0d2", "#f7e3ef"),
    *("#e6efd9", "#ffe8d6", "#dbe7f0", "#f1e6d8", "#e8e8ee", "#d9f0e3"),
)
BAND_COLOURS: Final = ("#d1495b", "#1b6ca8", "#2e8b57", "#8e44ad", "#c77700", "#007c89")
BAND_DASHES: Final = (None, (9.0, 4.0), (3.0, 3.0))  # bands differ by more than colour
MIN_TYPE, MAX_TYPE = 9.5, 24.0  # type
DISC_RADIUS: Final = 9.0
BAR_MODULE: Final = 1.0  # of a barcode: 0.25 mm on paper

Area = tuple[float, float, float, float]  # x, y, width, height on the page
BandStyle = tuple[str, tuple[float, float] | None]  # colour, dashes


class Sheet(NamedTuple):
    """How much of a page a board may cover, and where its lists of parts and offcuts stand."""

    right: float  # where the page ends
    max_length: float
    max_height: float
    list_x: float
    list_end: float
    list_y: float | None  # None: below the board
    bottom: float

    def scale(self, board: model.Board) -> float:
        return min(self.max_length / board.length, self.max_height / board.width)

    def top_of_lists(self, board: model.Board) -> float:
        floor = TOP + board.width * self.scale(board)
        return floor + BELOW if self.list_y is None else self.list_y


SCREEN: Final = Sheet(1148.0, 822.0, 628.0, 926.0, 1148.0, TOP, 830.0)  # with its lists beside it
PRINTED: Final = Sheet(800.0, 726.0, 560.0, 40.0, 280.0, None, 1150.0)  # with them below


class _BoardPage:
    """A page being drawn; it records where text is, so that nothing is drawn over it."""

    def __init__(self, plan: model.CuttingPlan, layout: model.Layout, texts: dict[str, str], sheet: Sheet) -> None:
        self.plan, self.layout, self.texts, self.sheet = plan, layout, texts, sheet
        self.demand, self.board = plan.demand, plan.demand.boards[layout.board]
        self.scale = sheet.scale(self.board)
        self.floor = TOP + self.board.width * self.scale
        self.drawn: list[shapes.Shape] = []
        self.reserved: list[Area] = []

    def box(self, rect: model.Rect) -> Area:
        """Return a rectangle of the board in page coordinates."""
        width = rect.width * self.scale
        x, y = LEFT + rect.x * self.scale, self.floor - rect.y * self.scale - width
        return x, y, rect.length * self.scale, width

    def add(self, *drawn: shapes.Shape) -> None:
        self.drawn += drawn

    def is_free(self, x: float, y: float, width: float, height: float) -> bool:
        return all(
            x + width <= left or left + wide <= x or y + height <= top or top + high <= y
            for left, top, wide, high in self.reserved
        )


def draw_layout(
    plan: model.CuttingPlan, number: int, language: Language = "en", head: PaperHead = NO_HEAD, sheet: Sheet = SCREEN
) -> list[shapes.Shape]:
    """Return the shapes of one layout; ``number`` counts from 1."""
    page = _BoardPage(plan, plan.layouts[number - 1], TEXTS[language], sheet)
    _draw_heading(page, number, head)
    _draw_board(page)
    names = {band.name for part in plan.demand.parts for band in part.bands if band is not None}
    bands = dict(zip(sorted(names), zip(cycle(BAND_COLOURS), cycle(BAND_DASHES)), strict=False))
    for offcut in page.layout.offcuts:
        _draw_offcut(page, offcut)
    for placement in page.layout.placements:
        _draw_piece(page, placement, bands)
    _draw_cut_numbers(page)
    _draw_dimensions(page)
    _draw_legend(page, bands)
    _draw_lists(page)
    return page.drawn


def _draw_heading(page: _BoardPage, number: int, head: PaperHead) -> None:
    board, layout, texts, end = page.board, page.layout, page.texts, page.sheet.right
    share = sum(placement.rect.area for placement in layout.placements) / board.area
    title = f"{texts['board']} {board_numbers(page.plan, number)} {texts['of']} {page.plan.boards}"
    page.add(*heading(title, head, end - 140))
    if layout.times > 1:
        x = 40 + shapes.text_length(title, 28, bold=True) + 14
        text = f"× {layout.times}"
        page.add(
            shapes.Box(x, 32, shapes.text_length(text, 24, bold=True) + 20, 32, INK),
            shapes.Text(x + 10, 56, text, 24, "#ffffff", bold=True),
        )
    trim = "/".join(map(model.mm_text, sorted(set(astuple(board.trims)))))
    kerf = "/".join(map(model.mm_text, sorted({page.demand.saw.kerf_rip, page.demand.saw.kerf_cross})))
    saw = f"{texts['trim']} {trim} · {texts['kerf']} {kerf}"
    size = f"{model.size_text(board.length, board.width)} mm"
    source = f"{texts['offcut']} {board.offcut}" if board.offcut else board.code
    details = " · ".join(filter(None, (page.demand.name, page.demand.material, size, source, saw)))
    page.add(
        shapes.Text(40, 104, shapes.shorten(details, 13, end - 60), 13, QUIET),
        shapes.Text(end, 56, f"{100 * share:.1f} %", 28, INK, "end", bold=True),
        shapes.Text(end, 80, texts["yield"], 13, QUIET, "end"),
    )


def heading(title: str, head: PaperHead, end: float) -> list[shapes.Shape]:
    """Return a page's title and its order, whose barcode ends at ``end``."""
    length = sum(head.bars) * BAR_MODULE
    drawn: list[shapes.Shape] = [shapes.Text(40, 56, title, 28, INK, bold=True)]
    room = end - length - 60
    drawn.append(shapes.Text(40, 82, shapes.shorten(head.text, 16, room), 16, INK))
    drawn.append(shapes.Text(end - length / 2, 84, head.code, 11, INK, "middle"))
    x = end - length
    for number, width in enumerate(head.bars):
        if number % 2 == 0:
            drawn.append(shapes.Box(x, 28, width * BAR_MODULE, 44, "#000000"))
        x += width * BAR_MODULE
    return drawn


def _draw_board(page: _BoardPage) -> None:
    board = page.board
    whole = page.box(model.Rect(0, 0, board.length, board.width))
    page.add(
        shapes.Box(*whole, TRIM_FILL, INK, 1.2),
        shapes.Hatch(*whole, "#b9b3a6", 7.0, 0.6),
        shapes.Box(*page.box(board.usable), BLADE_FILL),
    )


def _draw_offcut(page: _BoardPage, offcut: model.Rect) -> None:
    is_kept = page.demand.is_reusable(offcut)
    box = page.box(offcut)
    page.add(shapes.Box(*box, KEPT_FILL if is_kept else SCRAP_FILL))
    page.add(shapes.Hatch(*box, "#8fbf9c" if is_kept else "#c8c8c4"))
    if is_kept:
        size = model.size_text(offcut.length, offcut.width)
        _draw_label(page, box, [size], "#1d5c33", plate=KEPT_FILL)


def _draw_piece(page: _BoardPage, placement: model.Placement, bands: dict[str, BandStyle]) -> None:
    part = page.demand.parts[placement.part]
    box, number = page.box(placement.rect), str(placement.part + 1)
    page.add(shapes.Box(*box, TINTS[placement.part % len(TINTS)]))
    # Bands; a turned part is turned to the left.
    x, y, width, height = box
    top, bottom = ((x + 2, level, x + width - 2, level) for level in (y + 2.6, y + height - 2.6))
    left, right = ((at, y + 2, at, y + height - 2) for at in (x + 2.6, x + width - 2.6))
    sides = (left, right, bottom, top) if placement.turned else (top, bottom, left, right)
    for band, line in zip(part.bands, sides, strict=True):
        if band is not None:
            colour, dash = bands[band.name]
            page.add(shapes.Line(*line, colour, 3.4, dash))
    size = model.size_text(placement.rect.length, placement.rect.width)
    short = shapes.shorten(part.name, 12, max(box[2:]) - 24, bold=True)
    names = (f"{number} · {part.name}", f"{number} · {short}", number)
    candidates = [*([name, size] for name in names), [f"{number} · {size}"]]
    if not any(_draw_label(page, box, lines, INK) for lines in candidates):
        _draw_label(page, box, [number], INK, smallest=6.0)
    if not part.may_turn:
        _draw_grain(page, box)


def _draw_label(
    page: _BoardPage, box: Area, lines: list[str], colour: str, *, plate: str = "", smallest: float = MIN_TYPE
) -> bool:
    """Write lines into a box, also upright, as large as fits; returns whether they fit."""
    x, y, width, height = box
    longest = max(shapes.text_length(line, 1.0, bold=not n) for n, line in enumerate(lines))
    tallest = 1.25 * len(lines) - 0.25
    # With a margin for the bands.
    lying = min((width - 9) / longest, (height - 9) / tallest)
    standing = min((height - 9) / longest, (width - 9) / tallest)
    turned = standing > lying and lying < MIN_TYPE * 1.4
    size = min(standing if turned else lying, MAX_TYPE)
    if size < smallest:
        return False
    sides = (size * longest, size * tallest)
    wide, high = sides[::-1] if turned else sides
    middle_x, middle_y = x + width / 2, y + height / 2
    left, top = middle_x - wide / 2, middle_y - high / 2
    if plate:
        page.add(shapes.Box(left - 4, top - 4, wide + 8, high + 8, plate))
    page.reserved.append((left, top, wide, high))
    for row, line in enumerate(lines):
        base = size * 0.82 - sides[1] / 2 + row * size * 1.25
        at = (middle_x + base, middle_y) if turned else (middle_x, middle_y + base)
        page.add(shapes.Text(*at, line, size, colour, "middle", bold=row == 0, turned=turned))
    return True


def _draw_grain(page: _BoardPage, box: Area) -> None:
    """Draw an arrow along the grain if there is space."""
    x, y, width, height = box
    start, end, level = x + width - 42, x + width - 12, y + height - 13
    if width < 70 or height < 34 or not page.is_free(start, level - 5, 30, 10):  # noqa: PLR2004
        return
    page.reserved.append((start, level - 5, 30, 10))
    page.add(shapes.Line(start, level, end, level, QUIET, 1.2))
    for tip, back in ((start, 5), (end, -5)):
        for side in (-3.5, 3.5):
            page.add(shapes.Line(tip, level, tip + back, level + side, QUIET, 1.2))


def _draw_cut_numbers(page: _BoardPage) -> None:
    """Number every cut that has space for it; first-stage numbers are outside the board."""
    radius, half = DISC_RADIUS, page.demand.saw.kerf_rip * page.scale / 2
    for order, cut in enumerate(page.layout.cuts, len(trim_steps(page.board)) + 1):
        x, y, width, height = page.box(cut.panel)
        spot = page.box(model.Rect(cut.at, cut.at, 0, 0))
        line_x, line_y = spot[0] + half, spot[1] - half
        rips, is_first = cut.runs == "rip", cut.stage == 1
        reach = width if rips else height
        for share in (0.0, 1.0, 0.25, 0.75, 0.5):
            along = radius + 2 + share * (reach - 2 * radius - 4)
            at_x, at_y = (x + along, line_y) if rips else (line_x, y + height - along)
            if is_first and share == 0.0:
                at_x, at_y = (LEFT - radius - 4, line_y) if rips else (line_x, page.floor + radius + 4)
            around = (at_x - radius, at_y - radius, 2 * radius, 2 * radius)
            if page.is_free(*around) and (reach >= 2 * radius or share == 0.0):
                page.reserved.append(around)
                size = 10.0 if order < 100 else 8.0  # noqa: PLR2004
                ink, fill = ("#ffffff", INK) if is_first else (INK, "#ffffff")
                page.add(
                    shapes.Disc(at_x, at_y, radius, fill, INK),
                    shapes.Text(at_x, at_y + size * 0.36, str(order), size, ink, "middle"),
                )
                break


def _draw_dimensions(page: _BoardPage) -> None:
    board = page.board
    x, y, width, height = page.box(model.Rect(0, 0, board.length, board.width))
    level, side = y + height + 32, x - 34
    length_text, height_text = model.mm_text(board.length), model.mm_text(board.width)
    page.add(
        shapes.Line(x, level, x + width, level, QUIET, 0.8),
        shapes.Line(side, y, side, y + height, QUIET, 0.8),
        *(shapes.Line(end, level - 4, end, level + 4, QUIET, 0.8) for end in (x, x + width)),
        *(shapes.Line(side - 4, end, side + 4, end, QUIET, 0.8) for end in (y, y + height)),
        shapes.Box(x + width / 2 - 26, level - 8, 52, 16, "#ffffff"),
        shapes.Text(x + width / 2, level + 4.5, length_text, 13, QUIET, "middle"),
        shapes.Box(side - 8, y + height / 2 - 26, 16, 52, "#ffffff"),
        shapes.Text(side + 4.5, y + height / 2, height_text, 13, QUIET, "middle", turned=True),
    )


def _draw_legend(page: _BoardPage, bands: dict[str, BandStyle]) -> None:
    if not bands:
        return
    x, y = LEFT, page.floor + BELOW - 14
    page.add(shapes.Text(x, y, page.texts["band"], 12, QUIET))
    x += shapes.text_length(page.texts["band"], 12) + 16
    for name, (colour, dash) in bands.items():
        text = shapes.shorten(name, 12, 160)
        page.add(shapes.Line(x, y - 4, x + 34, y - 4, colour, 3.4, dash))
        page.add(shapes.Text(x + 42, y, text, 12, INK))
        x += 42 + shapes.text_length(text, 12) + 24
        if x > LEFT + page.sheet.max_length - 120:
            break


def _draw_lists(page: _BoardPage) -> None:
    """List the board's parts by number, and the offcuts to keep."""
    x, end, top = page.sheet.list_x, page.sheet.list_end, page.sheet.top_of_lists(page.board) + 10
    rows = sorted(Counter(placement.part for placement in page.layout.placements).items())
    offcuts = page.demand.kept_offcuts([page.layout])
    space = page.sheet.bottom - top - 80 - 20 * min(len(offcuts), 6)
    two_lines = len(rows) * 40 <= space  # names get a line of their own
    step = 40.0 if two_lines else min(24.0, max(15.0, space / len(rows)))
    size = min(13.0, step * 0.72)
    page.add(shapes.Text(x, top, page.texts["parts"], 13, INK, bold=True))
    y = top + 22
    for index, (number, pieces) in enumerate(rows):
        if y + step > top + 22 + space and index < len(rows) - 1:
            text = f"… {len(rows) - index} {page.texts['more']}"
            page.add(shapes.Text(x, y, text, size, QUIET))
            break
        second = y + 17 if two_lines else y
        part = page.demand.parts[number]
        name = shapes.shorten(part.name, size, end - x - 26 if two_lines else end - x - 146)
        measures = model.size_text(part.length, part.width)
        page.add(
            shapes.Line(x, y - size - 3, end, y - size - 3, FAINT, 0.6),
            shapes.Text(x + 18, y, str(number + 1), size, INK, "end", bold=True),
            shapes.Text(x + 26, y, name, size, INK),
            shapes.Text(end - 38, second, measures, size, INK, "end"),
            shapes.Text(end, second, f"{pieces}×", size, INK, "end", bold=True),
        )
        y += step
    y += 14
    page.add(shapes.Text(x, y, page.texts["offcuts"], 13, INK, bold=True))
    if not offcuts:
        page.add(shapes.Text(x, y + 20, page.texts["no_offcuts"], 12, QUIET))
    for offcut, pieces in list(offcuts.items())[:6]:
        y += 20
        page.add(
            shapes.Text(end - 38, y, model.size_text(*offcut), 12, "#1d5c33", "end"),
            shapes.Text(end, y, f"{pieces}×", 12, "#1d5c33", "end", bold=True),
        )
