"""Writes plans as PTX (pattern exchange), the records that saw controllers import.

Sizes are millimetres with one decimal, rounded down, so that no panel's sum exceeds its board. Text
is ASCII without commas. The trims, blade included, are in MATERIALS; the cuts divide what is left
inside them. CUTS is a nested list: a row cuts the piece of the last row of the phase before.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from typing import Any, Final

from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, Demand, Hundredths, Layout, Rect
from kesin.workloads.optiplan.optimizer.output.statistics import book_size
from kesin.workloads.optiplan.workshop.saw_rules import MAX_PTX_STAGES

_VERSION: Final = "1.08"
_ANY_NUMBER: Final = 99_999  # of boards in stock
_WASTE: Final = 90  # added to the phase of a cut
_NAME: Final = 50  # characters of the longest text
_LETTERS: Final = str.maketrans("ıøØłŁđĐßæÆ×·–,", "ioOlLdDsaAx-- ")
_TENTH: Final = model.MM // 10
_NUMBERED: Final = ("PARTS_REQ", "PARTS_INF", "BOARDS", "MATERIALS", "OFFCUTS", "PATTERNS")


def write_ptx(plans: Sequence[CuttingPlan]) -> bytes:
    """Return the file of one batch; raises Unplannable for a plan with too many stages."""
    name = ascii_text(plans[0].demand.name)
    records = _Records(name)
    for plan in plans:
        records.add(plan)
    header, job = ("HEADER", _VERSION, "Kesin", 0, 0, 1), ("JOBS", 1, name, *[""] * 4, 0)
    numbered = ((kind, 1, *row) for kind in _NUMBERED for row in records.numbered[kind].values())
    rows = (header, job, *numbered, *(("CUTS", 1, *row) for row in records.cuts))
    return "".join(f"{','.join(map(str, row))}\r\n" for row in rows).encode("ascii")


def ascii_text(text: str) -> str:
    """Convert ``Açık Meşe, 2`` to ``Acik Mese 2``; a character without a letter becomes ``?``."""
    folded = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    plain = (c for c in folded if not unicodedata.combining(c))
    shown = "".join("?" if c > "~" else c if c >= " " and c != '"' else " " for c in plain)
    return " ".join(shown.split())[:_NAME].rstrip()


def _mm(*sizes: Hundredths) -> list[str]:
    return [model.mm_text(size // _TENTH * _TENTH) for size in sizes]


def _trims(front: Hundredths, room: Hundredths, whole: Hundredths) -> list[str]:
    """Return both trims; the rear one leaves the room between them as it is rounded."""
    return _mm(front, _TENTH * (whole // _TENTH - front // _TENTH - room // _TENTH))


# The cuts of a layout by panel: order from 1, direction, pieces.
_Cuts = Mapping[Rect, tuple[int, model.CutDirection, Sequence[Rect]]]


class _Records:
    """The records of a file; all but the cuts are numbered from 1 by kind."""

    def __init__(self, job: str) -> None:
        self.numbered: dict[str, dict[Any, list[Any]]] = {kind: {} for kind in _NUMBERED}
        self.cuts: list[Sequence[Any]] = []
        self._job = job

    def _record(self, kind: str, key: Any, *cells: Any) -> list[Any]:
        """Return the record with this key, its number first."""
        rows = self.numbered[kind]
        return rows.setdefault(key, [len(rows) + 1, *cells])

    def add(self, plan: CuttingPlan) -> None:
        demand, before = plan.demand, len(self.numbered["PARTS_REQ"])
        material = self._material(demand, demand.board)
        for number, part in enumerate(demand.parts, before + 1):
            code = ascii_text(part.name) or str(number)
            size, grain = _mm(part.length, part.width), int(not part.may_turn)
            request = (code, material, *size, part.quantity, 0, 0, grain, "")
            self._record("PARTS_REQ", number, *request)
            up, lo, sx, dx = (ascii_text(band.name) if band else "" for band in part.bands)
            notes = ascii_text(" ".join(part.notes)) or code
            sizes = _mm(*part.finished)
            self._record("PARTS_INF", number, notes, 1, *sizes, self._job, lo, up, sx, dx)
        for number, layout in enumerate(plan.layouts, start=1):
            stages = max((cut.stage for cut in layout.cuts), default=1)
            if stages > MAX_PTX_STAGES:
                why = f"board {number} has {stages} stages, but a PTX file allows at most {MAX_PTX_STAGES}"
                remedy = f"set max_stages of the saw profile to {MAX_PTX_STAGES} or less"
                raise model.Unplannable(f"{demand.name}: {why}: {remedy}")
            has_head = demand.saw.head_cut and stages > demand.saw.max_stages
            self._add_pattern(demand, layout, before + 1, has_head=has_head)

    def _material(self, demand: Demand, board: model.Board, *, turned: bool = False) -> int:
        """Return the number of the material with this board's trims; turned, the axes change."""
        saw, trims, room = demand.saw, board.trims, board.usable
        rip = _mm(saw.kerf_rip), _trims(trims.bottom, room.width, board.width)
        cross = _mm(saw.kerf_cross), _trims(trims.left, room.length, board.length)
        (kerf, fixed), (other_kerf, other_fixed) = (cross, rip) if turned else (rip, cross)
        sizes = *kerf, *other_kerf, *fixed, *other_fixed
        name = ascii_text(demand.material or demand.name)
        thickness = _mm(demand.thickness) if demand.thickness else [""]
        book = book_size(demand) if saw.book_height and demand.thickness else ""
        texts = (name.replace(" ", "_"), name, *thickness, book)
        head_and_recut = ("", "", "")  # empty: the machine's own
        rules = (saw.max_stages or "", int(saw.head_cut), int(saw.first_cut != "rip"), "", "")
        cells = (*texts, *sizes, *head_and_recut, *rules, _grain(demand))
        return int(self._record("MATERIALS", (id(demand), sizes), *cells)[0])

    def _add_pattern(self, demand: Demand, layout: Layout, first_part: int, *, has_head: bool) -> None:
        board, times = demand.boards[layout.board], layout.times
        first = layout.cuts[0].runs if layout.cuts else "rip"
        turned = (first == "cross") != has_head
        material = self._material(demand, board, turned=turned)
        parts = {place.rect: str(place.part + first_part) for place in layout.placements}
        for rect in filter(demand.is_reusable, layout.offcuts):
            kept = (self._material(demand, demand.board), *_mm(rect.length, rect.width))
            code = f"X{len(self.numbered['OFFCUTS']) + 1}"
            offcut = self._record("OFFCUTS", kept, code, *kept, 0)
            offcut[-1] += times
            parts[rect] = offcut[1]
        book = min(book_size(demand), times)
        pieces = (times, ceil(times / book), book)
        code = ascii_text(board.offcut or board.code) or f"B{len(self.numbered['BOARDS']) + 1}"
        stock = 1 if board.offcut else _ANY_NUMBER if board.quantity is None else board.quantity
        size, price = _mm(board.length, board.width), f"{board.price / 100:.2f}"
        more = (price, "", "", "", _grain(demand), int(bool(board.offcut)), "")
        cells = (code, material, *size, stock, 0, *more, ascii_text(board.supplier))
        bought = self._record("BOARDS", (id(demand), layout.board, material), *cells)
        bought[6] += times
        pattern = len(self.numbered["PATTERNS"]) + 1
        self._record("PATTERNS", pattern, bought[0], turned + 2 * has_head, *pieces)
        cuts = {cut.panel: (order, cut.runs, cut.split(demand.saw)) for order, cut in enumerate(layout.cuts, start=1)}
        strips = tuple(_strips(cuts, parts, board.usable, first))
        rows = list(_rows(strips, 0 if has_head else 1, 1))
        sawn = sorted(strip.order for _, strip, repeat, _ in rows if repeat)
        for index, (phase, strip, repeat, made) in enumerate(rows, start=1):
            sequence = sawn.index(strip.order) + 1 if repeat else 0
            function = phase + _WASTE * (strip.is_waste or (strip.part[0] == "X" and repeat > 0))
            cells = (sequence, function, *_mm(strip.size), repeat, strip.part, made)
            self.cuts.append((pattern, index, *cells))


def _grain(demand: Demand) -> int:
    return int(any(not part.may_turn for part in demand.parts))


@dataclass(frozen=True, slots=True)
class _Strip:
    """What falls from a panel; equal strips in a row are one record."""

    size: Hundredths
    part: str  # "0", the number of a part, or X and that of a kept offcut
    strips: tuple["_Strip", ...]
    has_cut: bool  # False: it is left over when the last cut is made
    order: int = field(compare=False)  # of the cut that frees it

    @property
    def is_waste(self) -> bool:
        return self.part == "0" and not self.strips


def _strips(
    cuts: _Cuts, parts: Mapping[Rect, str], panel: Rect, runs: model.CutDirection, freed: int = 0
) -> Iterator[_Strip]:
    """Yield what a panel is cut into in one direction; cut ``freed`` frees the last."""
    order, across, pieces = cuts.get(panel, (0, runs, []))
    if pieces and across == runs:
        for piece, end in zip(pieces, (order, freed), strict=False):
            yield from _strips(cuts, parts, piece, runs, end)
        return
    inner = tuple(_strips(cuts, parts, panel, across)) if pieces else ()
    size = panel.width if runs == "rip" else panel.length
    yield _Strip(size, parts.get(panel, "0"), inner, freed > 0, freed)


def _rows(strips: Sequence[_Strip], phase: int, panels: int) -> Iterator[tuple[int, _Strip, int, int]]:
    """Yield phase, strip, number of cuts, and pieces of one board, of each row; no last waste."""
    for _, equal in groupby(strips[:-1] if strips and strips[-1].is_waste else strips):
        group = list(equal)
        strip, count = group[0], len(group)
        made = 0 if strip.is_waste or strip.strips else count * panels
        yield phase, strip, count if strip.has_cut else 0, made
        yield from _rows(strip.strips, phase + 1, panels * count)
