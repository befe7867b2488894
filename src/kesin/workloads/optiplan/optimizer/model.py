"""The model of a cutting plan: boards, parts, cuts, layouts.

Every length is an integer number of hundredths of a millimetre, the precision of an order, so
nothing is rounded between the order and the saw. The long side of a board, and its grain, run
along x. A part's length runs along x too, unless the part is turned.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final, Literal, Self

MM: Final = 100  # hundredths
MAX_PIECES: Final = 5_000  # of one demand
TURNABLE_GRAINS: Final = frozenset({0, 3})  # with 1 and 2 the part's length stays along the board's

Hundredths = int
CutDirection = Literal["rip", "cross"]  # along the board's length; across it
FirstCut = Literal["any", "rip", "cross"]


class Unplannable(ValueError):
    """No plan can be made for an order; the message names the part or value, and the reason."""


def hundredths(mm: float | str | Decimal) -> Hundredths:
    """Convert millimetres to hundredths, ties rounded up."""
    return int((Decimal(str(mm)) * MM).to_integral_value(ROUND_HALF_UP))


def mm_text(value: Hundredths) -> str:
    """Format hundredths as millimetres: 600, 598.4, 12.25."""
    return f"{Decimal(value) / MM:.2f}".rstrip("0").rstrip(".") if value % MM else str(value // MM)


def size_text(length: Hundredths, width: Hundredths) -> str:
    """Format a size in millimetres: 600 × 598.4."""
    return f"{mm_text(length)} × {mm_text(width)}"


def metres(value: Hundredths) -> float:
    return value / (1_000 * MM)


def square_metres(area: int) -> float:
    """Convert an area in square hundredths of a millimetre to square metres."""
    return area / (1_000 * MM) ** 2


@dataclass(frozen=True, slots=True, order=True)
class Rect:
    """A rectangle on a board; x along its length, y across, both from its lower left corner."""

    x: Hundredths
    y: Hundredths
    length: Hundredths
    width: Hundredths

    @property
    def right(self) -> Hundredths:
        return self.x + self.length

    @property
    def top(self) -> Hundredths:
        return self.y + self.width

    @property
    def area(self) -> int:
        return self.length * self.width


@dataclass(frozen=True, slots=True)
class Trims:
    """What is cut off a board's four sides first, saw blade included."""

    left: Hundredths
    right: Hundredths
    bottom: Hundredths
    top: Hundredths

    @classmethod
    def of(cls, each: Hundredths) -> Self:
        return cls(each, each, each, each)


@dataclass(frozen=True, slots=True)
class SawProfile:
    """The limits of a saw; a limit of 0 is none. A stage is a change of the cutting direction."""

    name: str = ""
    max_stages: int = 3
    first_cut: FirstCut = "any"
    kerf_rip: Hundredths = 4 * MM
    kerf_cross: Hundredths = 4 * MM
    smallest_strip: Hundredths = 0  # that holds pieces and falls from the board itself
    smallest_piece: Hundredths = 0  # the shorter side
    largest_cut: Hundredths = 0  # how far the saw carriage travels
    largest_rip: Hundredths = 0  # between the saw line and the far end of a panel
    head_cut: bool = False  # allows one more stage, before all others
    book_height: Hundredths = 0  # of the boards that are cut together

    @classmethod
    def of(cls, kerf: Hundredths, **limits: Any) -> Self:
        """Build a profile with the same kerf in both directions."""
        return cls(kerf_rip=kerf, kerf_cross=kerf, **limits)

    @property
    def stage_limit(self) -> int:
        """The most stages of a plan, a head cut included; 0 for any number."""
        return self.max_stages + self.head_cut if self.max_stages else 0

    def kerf(self, runs: CutDirection) -> Hundredths:
        return self.kerf_rip if runs == "rip" else self.kerf_cross


@dataclass(frozen=True, slots=True)
class Board:
    """A board as it is bought, or an offcut of the rack."""

    length: Hundredths
    width: Hundredths
    trims: Trims = Trims(10 * MM, 10 * MM, 10 * MM, 10 * MM)
    code: str = ""
    price: int = 0  # of one board, in hundredths of the currency
    quantity: int | None = None  # None: as many as needed
    supplier: str = ""
    offcut: str = ""  # its id in the rack

    @classmethod
    def of(cls, one_mm: float, other_mm: float, trim_mm: float = 10) -> Self:
        """Build a board from its sides in either order: the longer one is its length."""
        sides = sorted((hundredths(one_mm), hundredths(other_mm)))
        return cls(sides[1], sides[0], Trims.of(hundredths(trim_mm)))

    @property
    def usable(self) -> Rect:
        left, bottom = self.trims.left, self.trims.bottom
        length, width = self.length - left - self.trims.right, self.width - bottom - self.trims.top
        return Rect(left, bottom, length, width)

    @property
    def area(self) -> int:
        return self.length * self.width


@dataclass(frozen=True, slots=True)
class Band:
    """An edge band: its name in the order, and its thickness if the order states one."""

    name: str
    thickness: Hundredths = 0


@dataclass(frozen=True, slots=True)
class CutPart:
    """A line of the order, in sawn sizes; ``up`` and ``lo`` are bands along its length."""

    name: str
    length: Hundredths
    width: Hundredths
    quantity: int
    grain: int = 0
    finished_length: Hundredths = 0
    finished_width: Hundredths = 0
    bands: tuple[Band | None, ...] = (None, None, None, None)  # up, lo, sx, dx
    notes: tuple[str, ...] = ()

    @property
    def may_turn(self) -> bool:
        return self.grain in TURNABLE_GRAINS

    @property
    def turns(self) -> tuple[bool, ...]:
        """How the part may lie, turned or not; a square is not turned."""
        return (False, True) if self.may_turn and self.length != self.width else (False,)

    @property
    def area(self) -> int:
        return self.length * self.width

    def size(self, *, turned: bool) -> tuple[Hundredths, Hundredths]:
        """Return the part's extent along the board and across it."""
        return (self.width, self.length) if turned else (self.length, self.width)

    @property
    def finished(self) -> tuple[Hundredths, Hundredths]:
        """Return length and width with the edge bands."""
        return self.finished_length or self.length, self.finished_width or self.width


@dataclass(frozen=True, slots=True)
class Rates:
    """What the shop charges, in hundredths of its currency."""

    currency: str = ""
    cut_metre: int = 0
    band_metre: int = 0
    bands: tuple[tuple[str, int], ...] = ()  # of one metre, by the name of the band


@dataclass(frozen=True, slots=True)
class Demand:
    """The input of a plan: one material, its boards, the saw and the parts."""

    name: str
    board: Board  # the one that orders without a choice of boards are cut from
    parts: tuple[CutPart, ...]
    saw: SawProfile = SawProfile()
    material: str = ""
    thickness: Hundredths = 0  # 0: not stated
    more_boards: tuple[Board, ...] = ()  # other sizes, then offcuts
    rates: Rates = Rates()
    offcut_length: Hundredths = 400 * MM  # an offcut at least this long
    offcut_width: Hundredths = 150 * MM  # and this wide is worth keeping
    effort: Literal["quick", "normal", "thorough"] = "normal"

    @property
    def boards(self) -> tuple[Board, ...]:
        return (self.board, *self.more_boards)

    @property
    def pieces(self) -> int:
        return sum(part.quantity for part in self.parts)

    def is_reusable(self, rect: Rect) -> bool:
        short, long = sorted((rect.length, rect.width))
        return long >= self.offcut_length and short >= self.offcut_width

    def kept_offcuts(self, boards: Iterable["Layout"]) -> dict[tuple[Hundredths, Hundredths], int]:
        """Count the offcuts of these boards that are kept, by length and width, largest first."""
        offcuts = (rect for layout in boards for rect in layout.offcuts if self.is_reusable(rect))
        counts = Counter((rect.length, rect.width) for rect in offcuts)
        return dict(sorted(counts.items(), key=lambda item: (-math.prod(item[0]), item)))


@dataclass(frozen=True, slots=True)
class Placement:
    """A piece on a board; ``part`` is the index of the demand's part, from 0."""

    part: int
    rect: Rect
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut through a whole panel, edge to edge."""

    panel: Rect
    runs: CutDirection
    at: Hundredths  # the x of a cross cut, the y of a rip cut; the blade takes the kerf behind it
    stage: int  # how often the direction has changed on the way to the panel

    def split(self, saw: SawProfile) -> list[Rect]:
        """Return the pieces: none if the cut misses its panel, one if the blade takes the rest."""
        panel, rips, kerf = self.panel, self.runs == "rip", saw.kerf(self.runs)
        start, end = (panel.y, panel.top) if rips else (panel.x, panel.right)
        if not start < self.at < end:
            return []
        return [
            replace(panel, y=at, width=size) if rips else replace(panel, x=at, length=size)
            for at, size in ((start, self.at - start), (self.at + kerf, end - self.at - kerf))
            if size > 0
        ]


@dataclass(frozen=True, slots=True)
class Layout:
    """A board's cuts in their order, and the resulting pieces; ``times`` boards are cut so."""

    times: int
    placements: tuple[Placement, ...]
    offcuts: tuple[Rect, ...]
    cuts: tuple[Cut, ...]
    board: int = 0  # the index of the demand's board


@dataclass(frozen=True, slots=True)
class CuttingPlan:
    """How a demand is cut; a plan just made also knows how it was found."""

    demand: Demand
    layouts: tuple[Layout, ...]
    strategy: str = ""
    least_boards: int = 0  # the lower bound
    strategy_boards: tuple[tuple[str, int], ...] = ()  # per strategy: its name, its boards

    @property
    def boards(self) -> int:
        return sum(layout.times for layout in self.layouts)

    @property
    def board_counts(self) -> Counter[int]:
        """Count the boards that are cut, by their index in the demand."""
        counts: Counter[int] = Counter()
        for layout in self.layouts:
            counts[layout.board] += layout.times
        return counts

    @property
    def kept_offcuts(self) -> dict[tuple[Hundredths, Hundredths], int]:
        """Count the offcuts of all boards that are kept, by length and width, largest first."""
        boards = (layout for layout in self.layouts for _ in range(layout.times))
        return self.demand.kept_offcuts(boards)


def check_demand(demand: Demand) -> None:
    """Raise Unplannable, naming the part or value, if a demand cannot be planned."""
    bought = [board for board in demand.boards if not board.offcut]
    if min(demand.saw.kerf_rip, demand.saw.kerf_cross) < 0 or any(
        min(board.length, board.width) <= 0 for board in bought
    ):
        raise Unplannable(f"{demand.name}: board sizes must be positive, and the kerf must not be negative")
    rooms = [board.usable for board in bought]
    if any(min(room.length, room.width) <= 0 for room in rooms) or any(
        min(astuple(board.trims)) < 0 for board in bought
    ):
        raise Unplannable(f"{demand.name}: the trims leave nothing of the board")
    if not demand.parts:
        raise Unplannable(f"{demand.name}: there are no parts to cut")
    if demand.pieces > MAX_PIECES:
        why = f"{demand.pieces} pieces in one plan; at most {MAX_PIECES} are accepted"
        raise Unplannable(f"{demand.name}: {why}")
    for part in demand.parts:
        _check_part(demand, part, bought)


def _check_part(demand: Demand, part: CutPart, boards: Sequence[Board]) -> None:
    size = f"part {part.name!r} ({size_text(part.length, part.width)} mm)"
    if part.quantity <= 0 or part.length <= 0 or part.width <= 0:
        raise Unplannable(
            f"part {part.name!r}: sizes and quantity must be positive,"
            f" got {size_text(part.length, part.width)} mm, {part.quantity} pieces"
        )
    if part.grain not in range(4):
        raise Unplannable(f"part {part.name!r}: the grain must be 0, 1, 2 or 3, got {part.grain}")
    if min(part.length, part.width) < demand.saw.smallest_piece:
        least = mm_text(demand.saw.smallest_piece)
        raise Unplannable(f"{size} is smaller than smallest_piece of the saw, {least} mm")
    if not any(_fits(part, board.usable) for board in boards):
        fixed = "" if part.may_turn else f" and grain {part.grain} forbids turning it"
        rooms = ", ".join(
            f"{size_text(board.usable.length, board.usable.width)} mm are left of"
            f" {size_text(board.length, board.width)} mm"
            for board in boards
        )
        raise Unplannable(f"{size} is larger than the board: {rooms} inside the trims{fixed}")


def _fits(part: CutPart, room: Rect) -> bool:
    sizes = (part.size(turned=turned) for turned in part.turns)
    return any(along <= room.length and across <= room.width for along, across in sizes)
