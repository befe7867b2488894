"""One board as a person at the saw wants it: what is where, how large, and cut in which order.

Type is as large as its place allows; what does not fit is left to the number, which always leads
to the list beside the board. The dark lines between the pieces are the blade's own width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kesin.workloads.optiplan.optimizer.model import (
    Band,
    Demand,
    Layout,
    Part,
    Placement,
    Plan,
    Rect,
    mm_text,
)
from kesin.workloads.optiplan.optimizer.output.cut_list import (
    board_numbers,
    offcut_lines,
    piece_lines,
    trim_count,
)
from kesin.workloads.optiplan.optimizer.output.shapes import (
    Box,
    Disc,
    Hatch,
    Line,
    Shape,
    Text,
    shortened,
    text_length,
)
from kesin.workloads.optiplan.optimizer.output.texts import WORDS, Language

LEFT, TOP, ROOM_LENGTH, ROOM_HEIGHT = 74.0, 118.0, 822.0, 640.0
LIST_X, LIST_END = 926.0, 1148.0
INK, QUIET, FAINT = "#16191d", "#5b636d", "#c9ced6"
BLADE, TRIM, SCRAP, KEPT = "#3a3f46", "#dcd8cf", "#f3f3f1", "#e9f5ec"
TINTS: Final = (
    "#fff4dc",
    "#e4eefb",
    "#fbe6e2",
    "#e9e4f7",
    "#dff3f1",
    "#f6f0d2",
    "#f7e3ef",
    "#e6efd9",
    "#ffe8d6",
    "#dbe7f0",
    "#f1e6d8",
    "#e8e8ee",
    "#d9f0e3",
)
BAND_COLOURS: Final = ("#d1495b", "#1b6ca8", "#2e8b57", "#8e44ad", "#c77700", "#007c89")
BAND_DASHES: Final = (None, (9.0, 4.0), (3.0, 3.0))  # colour is never the only sign
SMALLEST, LARGEST = 9.5, 24.0  # type
DISC: Final = 9.0


@dataclass(slots=True)
class _Page:
    """A page as it grows; places that hold text are kept, so that nothing is written over them."""

    plan: Plan
    layout: Layout
    words: dict[str, str]
    scale: float
    shapes: list[Shape] = field(default_factory=list)
    taken: list[tuple[float, float, float, float]] = field(default_factory=list)

    @property
    def demand(self) -> Demand:
        return self.plan.demand

    def box(self, rect: Rect) -> tuple[float, float, float, float]:
        """Where a rectangle of the board lies on the page."""
        width = rect.width * self.scale
        floor = TOP + self.demand.board.width * self.scale
        x, y = LEFT + rect.x * self.scale, floor - rect.y * self.scale - width
        return x, y, rect.length * self.scale, width

    def take(self, x: float, y: float, width: float, height: float) -> None:
        self.taken.append((x, y, x + width, y + height))

    def is_free(self, x: float, y: float, width: float, height: float) -> bool:
        return all(
            x + width <= left or right <= x or y + height <= top or bottom <= y
            for left, top, right, bottom in self.taken
        )


def picture(plan: Plan, number: int, language: Language = "en") -> list[Shape]:
    """The shapes of one layout; ``number`` counts from 1."""
    board = plan.demand.board
    scale = min(ROOM_LENGTH / board.length, ROOM_HEIGHT / board.width)
    page = _Page(plan, plan.layouts[number - 1], WORDS[language], scale)
    _heading(page, number)
    _board(page)
    bands = _bands(plan.demand)
    for rest in page.layout.offcuts:
        _offcut(page, rest)
    for placement in page.layout.placements:
        _piece(page, placement, bands)
    _cut_numbers(page)
    _sizes(page)
    _legend(page, bands)
    _lists(page)
    return page.shapes


def _heading(page: _Page, number: int) -> None:
    demand, layout, words = page.demand, page.layout, page.words
    share = sum(one.rect.area for one in layout.placements) / demand.board.area
    which = board_numbers(page.plan, number)
    title = f"{words['board']} {which} {words['of']} {page.plan.boards}"
    page.shapes.append(Text(40, 62, title, 28, INK, bold=True))
    if layout.times > 1:
        x = 40 + text_length(title, 28, bold=True) + 14
        told = f"× {layout.times}"
        page.shapes.append(Box(x, 38, text_length(told, 24, bold=True) + 20, 32, INK))
        page.shapes.append(Text(x + 10, 62, told, 24, "#ffffff", bold=True))
    trims = demand.board.trims
    sides = {trims.left, trims.right, trims.bottom, trims.top}
    trim = "/".join(mm_text(side) for side in sorted(sides))
    facts = (
        f"{mm_text(demand.board.length)} × {mm_text(demand.board.width)} mm",
        demand.material,
        f"{words['trim']} {trim}",
        f"{words['kerf']} {mm_text(demand.kerf)}",
        demand.name,
    )
    told = " · ".join(fact for fact in facts if fact)
    page.shapes.append(Text(40, 90, shortened(told, 13, LIST_X - 60), 13, QUIET))
    page.shapes.append(Text(LIST_END, 62, f"{100 * share:.1f} %", 28, INK, "end", bold=True))
    page.shapes.append(Text(LIST_END, 90, words["yield"], 13, QUIET, "end"))


def _board(page: _Page) -> None:
    board = page.demand.board
    whole = page.box(Rect(0, 0, board.length, board.width))
    page.shapes += [
        Box(*whole, TRIM, INK, 1.2),
        Hatch(*whole, "#b9b3a6", 7.0, 0.6),
        Box(*page.box(board.usable), BLADE),
    ]


def _offcut(page: _Page, rest: Rect) -> None:
    kept = page.demand.is_reusable(rest)
    x, y, width, height = page.box(rest)
    page.shapes.append(Box(x, y, width, height, KEPT if kept else SCRAP))
    page.shapes.append(Hatch(x, y, width, height, "#8fbf9c" if kept else "#c8c8c4"))
    if kept:
        told = f"{mm_text(rest.length)} × {mm_text(rest.width)}"
        _label(page, (x, y, width, height), [told], "#1d5c33", plate=KEPT)


def _piece(page: _Page, placement: Placement, bands: dict[str, int]) -> None:
    part = page.demand.parts[placement.part]
    x, y, width, height = page.box(placement.rect)
    number = str(placement.part + 1)
    page.shapes.append(Box(x, y, width, height, TINTS[placement.part % len(TINTS)]))
    for band, line in _edges(part, placement, (x, y, width, height)):
        colour, dash = _style(bands[band.name])
        page.shapes.append(Line(*line, colour, 3.4, dash))
    size = f"{mm_text(placement.rect.length)} × {mm_text(placement.rect.width)}"
    short = shortened(part.name, 12, max(width, height) - 24, bold=True)
    wanted = (
        [f"{number} · {part.name}", size],
        [f"{number} · {short}", size],
        [number, size],
        [f"{number} · {size}"],
    )
    for lines in wanted:
        if _label(page, (x, y, width, height), lines, INK):
            break
    else:
        _label(page, (x, y, width, height), [number], INK, smallest=6.0)
    if not part.may_turn:
        _grain(page, (x, y, width, height))


def _label(  # a place, and what to write in its middle
    page: _Page,
    box: tuple[float, float, float, float],
    lines: list[str],
    colour: str,
    *,
    plate: str = "",
    smallest: float = SMALLEST,
) -> bool:
    """Write lines into a place, lying or standing, as large as they go; whether they do."""
    x, y, width, height = box
    lying, standing = _fit(lines, width, height), _fit(lines, height, width)
    turned = standing > lying and lying < SMALLEST * 1.4
    size = min(standing if turned else lying, LARGEST)
    if size < smallest:
        return False
    longest = max(text_length(line, size, bold=not n) for n, line in enumerate(lines))
    high = size * (1.25 * len(lines) - 0.25)
    middle_x, middle_y = x + width / 2, y + height / 2
    across, down = (high, longest) if turned else (longest, high)
    if plate:
        page.shapes.append(
            Box(middle_x - across / 2 - 4, middle_y - down / 2 - 4, across + 8, down + 8, plate)
        )
    page.take(middle_x - across / 2, middle_y - down / 2, across, down)
    for row, line in enumerate(lines):
        base = size * 0.82 - high / 2 + row * size * 1.25
        place = (middle_x + base, middle_y) if turned else (middle_x, middle_y + base)
        page.shapes.append(Text(*place, line, size, colour, "middle", bold=row == 0, turned=turned))
    return True


def _fit(lines: list[str], width: float, height: float) -> float:
    """The largest type in which the lines fit, with a margin for the bands."""
    widest = max(text_length(line, 1.0, bold=not n) for n, line in enumerate(lines))
    return min((width - 9) / widest, (height - 9) / (1.25 * len(lines) - 0.25))


def _edges(
    part: Part, placement: Placement, box: tuple[float, float, float, float]
) -> Iterator[tuple[Band, tuple[float, float, float, float]]]:
    """The banded edges as they lie: a turned part was turned to the left."""
    x, y, width, height = box
    inset = 2.6
    top = (x + 2, y + inset, x + width - 2, y + inset)
    bottom = (x + 2, y + height - inset, x + width - 2, y + height - inset)
    left = (x + inset, y + 2, x + inset, y + height - 2)
    right = (x + width - inset, y + 2, x + width - inset, y + height - 2)
    sides = (left, right, bottom, top) if placement.turned else (top, bottom, left, right)
    for band, side in zip((part.up, part.lo, part.sx, part.dx), sides, strict=True):
        if band is not None:
            yield band, side


def _grain(page: _Page, box: tuple[float, float, float, float]) -> None:
    """An arrow along the grain, where there is room for one."""
    x, y, width, height = box
    start, end, level = x + width - 42, x + width - 12, y + height - 13
    if width < 70 or height < 34 or not page.is_free(start, level - 5, 30, 10):  # noqa: PLR2004
        return
    page.take(start, level - 5, 30, 10)
    page.shapes.append(Line(start, level, end, level, QUIET, 1.2))
    for tip, back in ((start, 5), (end, -5)):
        for side in (-3.5, 3.5):
            page.shapes.append(Line(tip, level, tip + back, level + side, QUIET, 1.2))


def _cut_numbers(page: _Page) -> None:
    """A number on every cut that has room for one; those of the first stage stand outside."""
    first = trim_count(page.demand) + 1
    for order, cut in enumerate(page.layout.cuts, start=first):
        x, y, width, height = page.box(cut.panel)
        half = page.demand.kerf * page.scale / 2
        spot = page.box(Rect(cut.at, cut.at, 0, 0))
        rips = cut.runs == "rip"
        line_x, line_y = spot[0] + half, spot[1] - half
        reach = width if rips else height
        for share in (0.0, 1.0, 0.25, 0.75, 0.5):
            along = DISC + 2 + share * (reach - 2 * DISC - 4)
            middle = (x + along, line_y) if rips else (line_x, y + height - along)
            if cut.stage == 1 and share == 0.0:
                floor = TOP + page.demand.board.width * page.scale
                middle = (LEFT - DISC - 4, line_y) if rips else (line_x, floor + DISC + 4)
            around = (middle[0] - DISC, middle[1] - DISC, 2 * DISC, 2 * DISC)
            if page.is_free(*around) and (reach >= 2 * DISC or share == 0.0):
                page.take(*around)
                solid = cut.stage == 1
                page.shapes.append(Disc(*middle, DISC, INK if solid else "#ffffff", INK))
                size = 10.0 if order < 100 else 8.0  # noqa: PLR2004
                ink = "#ffffff" if solid else INK
                told = Text(middle[0], middle[1] + size * 0.36, str(order), size, ink, "middle")
                page.shapes.append(told)
                break


def _sizes(page: _Page) -> None:
    """The board's own measures."""
    board = page.demand.board
    x, y, width, height = page.box(Rect(0, 0, board.length, board.width))
    level, side = y + height + 32, x - 34
    page.shapes += [
        Line(x, level, x + width, level, QUIET, 0.8),
        Line(side, y, side, y + height, QUIET, 0.8),
        *(Line(end, level - 4, end, level + 4, QUIET, 0.8) for end in (x, x + width)),
        *(Line(side - 4, end, side + 4, end, QUIET, 0.8) for end in (y, y + height)),
    ]
    length, high = mm_text(board.length), mm_text(board.width)
    page.shapes += [
        Box(x + width / 2 - 26, level - 8, 52, 16, "#ffffff"),
        Text(x + width / 2, level + 4.5, length, 13, QUIET, "middle"),
        Box(side - 8, y + height / 2 - 26, 16, 52, "#ffffff"),
        Text(side + 4.5, y + height / 2, high, 13, QUIET, "middle", turned=True),
    ]


def _bands(demand: Demand) -> dict[str, int]:
    """Every band of the order by its name, numbered for its colour."""
    names = {
        band.name
        for part in demand.parts
        for band in (part.up, part.lo, part.sx, part.dx)
        if band is not None
    }
    return {name: number for number, name in enumerate(sorted(names))}


def _style(number: int) -> tuple[str, tuple[float, float] | None]:
    return BAND_COLOURS[number % len(BAND_COLOURS)], BAND_DASHES[number % len(BAND_DASHES)]


def _legend(page: _Page, bands: dict[str, int]) -> None:
    if not bands:
        return
    x, y = LEFT, 822.0
    page.shapes.append(Text(x, y, page.words["band"], 12, QUIET))
    x += text_length(page.words["band"], 12) + 16
    for name, number in bands.items():
        colour, dash = _style(number)
        told = shortened(name, 12, 160)
        page.shapes.append(Line(x, y - 4, x + 34, y - 4, colour, 3.4, dash))
        page.shapes.append(Text(x + 42, y, told, 12, INK))
        x += 42 + text_length(told, 12) + 24
        if x > LIST_X - 120:
            break


def _lists(page: _Page) -> None:
    """Beside the board: its parts by number, and the offcuts that go to the rack."""
    rows = [
        (str(one.number), one.name, f"{mm_text(one.length)} × {mm_text(one.width)}", one.pieces)
        for one in piece_lines(page.demand, page.layout)
    ]
    kept = offcut_lines(page.demand, page.layout)
    room = 600.0 - 20 * min(len(kept), 6)
    roomy = len(rows) * 40 <= room  # a name has a line of its own
    step = 40.0 if roomy else min(24.0, max(15.0, room / len(rows)))
    size = min(13.0, step * 0.72)
    page.shapes.append(Text(LIST_X, TOP + 10, page.words["parts"], 13, INK, bold=True))
    y = TOP + 32
    for index, (number, name, measures, pieces) in enumerate(rows):
        if y + step > TOP + 32 + room and index < len(rows) - 1:
            told = f"… {len(rows) - index} {page.words['more']}"
            page.shapes.append(Text(LIST_X, y, told, size, QUIET))
            break
        second = y + 17 if roomy else y
        name_room = LIST_END - LIST_X - 26 if roomy else 76
        page.shapes += [
            Line(LIST_X, y - size - 3, LIST_END, y - size - 3, FAINT, 0.6),
            Text(LIST_X + 18, y, number, size, INK, "end", bold=True),
            Text(LIST_X + 26, y, shortened(name, size, name_room), size, INK),
            Text(LIST_END - 38, second, measures, size, INK, "end"),
            Text(LIST_END, second, f"{pieces}×", size, INK, "end", bold=True),
        ]
        y += step
    y += 14
    page.shapes.append(Text(LIST_X, y, page.words["offcuts"], 13, INK, bold=True))
    if not kept:
        page.shapes.append(Text(LIST_X, y + 20, page.words["no_offcuts"], 12, QUIET))
    for rest in kept[:6]:
        y += 20
        told = f"{mm_text(rest.length)} × {mm_text(rest.width)}"
        page.shapes += [
            Text(LIST_END - 38, y, told, 12, "#1d5c33", "end"),
            Text(LIST_END, y, f"{rest.pieces}×", 12, "#1d5c33", "end", bold=True),
        ]
