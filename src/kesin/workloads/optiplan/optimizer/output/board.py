"""Draws a board: type as large as fits, numbers for small pieces, gaps as wide as the blade."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from itertools import cycle
from typing import Final

from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.output import shapes
from kesin.workloads.optiplan.optimizer.output.shapes import TEXTS
from kesin.workloads.optiplan.optimizer.output.statistics import board_numbers, trim_steps

LEFT, TOP, MAX_LENGTH, MAX_HEIGHT = 74.0, 118.0, 822.0, 640.0
LIST_X, LIST_END = 926.0, 1148.0
INK, QUIET, FAINT = "#16191d", "#5b636d", "#c9ced6"
BLADE_FILL, TRIM_FILL, SCRAP_FILL, KEPT_FILL = "#3a3f46", "#dcd8cf", "#f3f3f1", "#e9f5ec"
TINTS: Final = (  # of the parts, in turn
    *("#fff4dc", "#e4eefb", "#fbe6e2", "#e9e4f7", "#dff3f1", "#f6f0d2", "#f7e3ef"),
    *("#e6efd9", "#ffe8d6", "#dbe7f0", "#f1e6d8", "#e8e8ee", "#d9f0e3"),
)
BAND_COLOURS: Final = ("#d1495b", "#1b6ca8", "#2e8b57", "#8e44ad", "#c77700", "#007c89")
BAND_DASHES: Final = (None, (9.0, 4.0), (3.0, 3.0))  # bands differ by more than colour
MIN_TYPE, MAX_TYPE = 9.5, 24.0  # type
DISC_RADIUS: Final = 9.0

Area = tuple[float, float, float, float]  # x, y, width, height on the page
BandStyle = tuple[str, tuple[float, float] | None]  # colour, dashes


@dataclass(slots=True)
class _BoardPage:
    """A page being drawn; it records where text is, so that nothing is drawn over it."""

    plan: model.CuttingPlan
    layout: model.Layout
    texts: dict[str, str]
    scale: float
    drawn: list[shapes.Shape] = field(default_factory=list)
    reserved: list[Area] = field(default_factory=list)

    @property
    def demand(self) -> model.Demand:
        return self.plan.demand

    def box(self, rect: model.Rect) -> Area:
        """Return a rectangle of the board in page coordinates."""
        width = rect.width * self.scale
        floor = TOP + self.demand.board.width * self.scale
        x, y = LEFT + rect.x * self.scale, floor - rect.y * self.scale - width
        return x, y, rect.length * self.scale, width

    def add(self, *drawn: shapes.Shape) -> None:
        self.drawn += drawn

    def is_free(self, x: float, y: float, width: float, height: float) -> bool:
        return all(
            x + width <= left or left + wide <= x or y + height <= top or top + high <= y
            for left, top, wide, high in self.reserved
        )


def draw_layout(
    plan: model.CuttingPlan, number: int, language: Language = "en"
) -> list[shapes.Shape]:
    """Return the shapes of one layout; ``number`` counts from 1."""
    board = plan.demand.board
    scale = min(MAX_LENGTH / board.length, MAX_HEIGHT / board.width)
    page = _BoardPage(plan, plan.layouts[number - 1], TEXTS[language], scale)
    _draw_heading(page, number)
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


def _draw_heading(page: _BoardPage, number: int) -> None:
    demand, layout, texts = page.demand, page.layout, page.texts
    share = sum(placement.rect.area for placement in layout.placements) / demand.board.area
    title = f"{texts['board']} {board_numbers(page.plan, number)} {texts['of']} {page.plan.boards}"
    page.add(shapes.Text(40, 62, title, 28, INK, bold=True))
    if layout.times > 1:
        x = 40 + shapes.text_length(title, 28, bold=True) + 14
        text = f"× {layout.times}"
        page.add(
            shapes.Box(x, 38, shapes.text_length(text, 24, bold=True) + 20, 32, INK),
            shapes.Text(x + 10, 62, text, 24, "#ffffff", bold=True),
        )
    trim = "/".join(map(model.mm_text, sorted(set(astuple(demand.board.trims)))))
    size = model.size_text(demand.board.length, demand.board.width)
    saw = f"{texts['trim']} {trim} · {texts['kerf']} {model.mm_text(demand.kerf)}"
    details = " · ".join(filter(None, (f"{size} mm", demand.material, saw, demand.name)))
    page.add(
        shapes.Text(40, 90, shapes.shorten(details, 13, LIST_X - 60), 13, QUIET),
        shapes.Text(LIST_END, 62, f"{100 * share:.1f} %", 28, INK, "end", bold=True),
        shapes.Text(LIST_END, 90, texts["yield"], 13, QUIET, "end"),
    )


def _draw_board(page: _BoardPage) -> None:
    board = page.demand.board
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
    for band, line in _banded_edges(part, placement, box):
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
    page: _BoardPage,
    box: Area,
    lines: list[str],
    colour: str,
    *,
    plate: str = "",
    smallest: float = MIN_TYPE,
) -> bool:
    """Write lines into a box, also upright, as large as fits; returns whether they fit."""
    x, y, width, height = box
    lying, standing = _fitting_size(lines, width, height), _fitting_size(lines, height, width)
    turned = standing > lying and lying < MIN_TYPE * 1.4
    size = min(standing if turned else lying, MAX_TYPE)
    if size < smallest:
        return False
    longest = max(shapes.text_length(line, size, bold=not n) for n, line in enumerate(lines))
    text_height = size * (1.25 * len(lines) - 0.25)
    middle_x, middle_y = x + width / 2, y + height / 2
    wide, high = (text_height, longest) if turned else (longest, text_height)
    left, top = middle_x - wide / 2, middle_y - high / 2
    if plate:
        page.add(shapes.Box(left - 4, top - 4, wide + 8, high + 8, plate))
    page.reserved.append((left, top, wide, high))
    for row, line in enumerate(lines):
        base = size * 0.82 - text_height / 2 + row * size * 1.25
        at = (middle_x + base, middle_y) if turned else (middle_x, middle_y + base)
        page.add(shapes.Text(*at, line, size, colour, "middle", bold=row == 0, turned=turned))
    return True


def _fitting_size(lines: list[str], width: float, height: float) -> float:
    """Return the largest type size in which the lines fit, with a margin for the bands."""
    widest = max(shapes.text_length(line, 1.0, bold=not n) for n, line in enumerate(lines))
    return min((width - 9) / widest, (height - 9) / (1.25 * len(lines) - 0.25))


def _banded_edges(
    part: model.CutPart, placement: model.Placement, box: Area
) -> Iterator[tuple[model.Band, tuple[float, float, float, float]]]:
    """Yield the banded edges as lines on the page; a turned part is turned to the left."""
    x, y, width, height = box
    inset = 2.6
    top = (x + 2, y + inset, x + width - 2, y + inset)
    bottom = (x + 2, y + height - inset, x + width - 2, y + height - inset)
    left = (x + inset, y + 2, x + inset, y + height - 2)
    right = (x + width - inset, y + 2, x + width - inset, y + height - 2)
    sides = (left, right, bottom, top) if placement.turned else (top, bottom, left, right)
    for band, side in zip(part.bands, sides, strict=True):
        if band is not None:
            yield band, side


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
    radius, half = DISC_RADIUS, page.demand.kerf * page.scale / 2
    floor = TOP + page.demand.board.width * page.scale
    for order, cut in enumerate(page.layout.cuts, len(trim_steps(page.demand)) + 1):
        x, y, width, height = page.box(cut.panel)
        spot = page.box(model.Rect(cut.at, cut.at, 0, 0))
        line_x, line_y = spot[0] + half, spot[1] - half
        rips, is_first = cut.runs == "rip", cut.stage == 1
        reach = width if rips else height
        for share in (0.0, 1.0, 0.25, 0.75, 0.5):
            along = radius + 2 + share * (reach - 2 * radius - 4)
            at_x, at_y = (x + along, line_y) if rips else (line_x, y + height - along)
            if is_first and share == 0.0:
                at_x, at_y = (LEFT - radius - 4, line_y) if rips else (line_x, floor + radius + 4)
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
    board = page.demand.board
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
    x, y = LEFT, 822.0
    page.add(shapes.Text(x, y, page.texts["band"], 12, QUIET))
    x += shapes.text_length(page.texts["band"], 12) + 16
    for name, (colour, dash) in bands.items():
        text = shapes.shorten(name, 12, 160)
        page.add(shapes.Line(x, y - 4, x + 34, y - 4, colour, 3.4, dash))
        page.add(shapes.Text(x + 42, y, text, 12, INK))
        x += 42 + shapes.text_length(text, 12) + 24
        if x > LIST_X - 120:
            break


def _draw_lists(page: _BoardPage) -> None:
    """List beside the board its parts by number, and the offcuts to keep."""
    rows = sorted(Counter(placement.part for placement in page.layout.placements).items())
    offcuts = page.demand.kept_offcuts([page.layout])
    space = 600.0 - 20 * min(len(offcuts), 6)
    two_lines = len(rows) * 40 <= space  # names get a line of their own
    step = 40.0 if two_lines else min(24.0, max(15.0, space / len(rows)))
    size = min(13.0, step * 0.72)
    page.add(shapes.Text(LIST_X, TOP + 10, page.texts["parts"], 13, INK, bold=True))
    y = TOP + 32
    for index, (number, pieces) in enumerate(rows):
        if y + step > TOP + 32 + space and index < len(rows) - 1:
            text = f"… {len(rows) - index} {page.texts['more']}"
            page.add(shapes.Text(LIST_X, y, text, size, QUIET))
            break
        second = y + 17 if two_lines else y
        part = page.demand.parts[number]
        name = shapes.shorten(part.name, size, LIST_END - LIST_X - 26 if two_lines else 76)
        measures = model.size_text(part.length, part.width)
        page.add(
            shapes.Line(LIST_X, y - size - 3, LIST_END, y - size - 3, FAINT, 0.6),
            shapes.Text(LIST_X + 18, y, str(number + 1), size, INK, "end", bold=True),
            shapes.Text(LIST_X + 26, y, name, size, INK),
            shapes.Text(LIST_END - 38, second, measures, size, INK, "end"),
            shapes.Text(LIST_END, second, f"{pieces}×", size, INK, "end", bold=True),
        )
        y += step
    y += 14
    page.add(shapes.Text(LIST_X, y, page.texts["offcuts"], 13, INK, bold=True))
    if not offcuts:
        page.add(shapes.Text(LIST_X, y + 20, page.texts["no_offcuts"], 12, QUIET))
    for offcut, pieces in list(offcuts.items())[:6]:
        y += 20
        page.add(
            shapes.Text(LIST_END - 38, y, model.size_text(*offcut), 12, "#1d5c33", "end"),
            shapes.Text(LIST_END, y, f"{pieces}×", 12, "#1d5c33", "end", bold=True),
        )
