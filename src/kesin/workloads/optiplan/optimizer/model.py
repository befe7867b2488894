"""The words of a cutting plan: boards, parts, cuts, layouts.

Every length is a whole number of hundredths of a millimetre, as fine as an order can be; nothing
is rounded on the way from the order to the saw. A board lies with its long side along x: that is
the way its grain runs. A part's length lies along x too, unless the part is turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Final, Literal

MM: Final = 100  # hundredths
MOST_PIECES: Final = 5_000  # of one demand
TURNING_GRAINS: Final = frozenset({0, 3})  # 1 and 2 keep the part's length along the board's

Hundredths = int
Runs = Literal["rip", "cross"]  # along the board's length; across it


class Unplannable(ValueError):
    """An order no plan can be made for; the message says which part or value, and why."""


class PartTooLarge(Unplannable):
    """A part that fits the board in no allowed way."""


def hundredths(mm: float | str | Decimal) -> Hundredths:
    """Millimetres as hundredths, ties rounded up."""
    return int((Decimal(str(mm)) * MM).to_integral_value(ROUND_HALF_UP))


def mm_text(value: Hundredths) -> str:
    """Millimetres for people: 600, 598.4, 12.25."""
    return f"{Decimal(value) / MM:.2f}".rstrip("0").rstrip(".") if value % MM else str(value // MM)


def metres(value: Hundredths) -> float:
    """Metres, for sums that people read."""
    return value / (1_000 * MM)


def square_metres(area: int) -> float:
    """Square metres of an area in square hundredths."""
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
    """What is cut off a board's four sides before anything else, saw blade included."""

    left: Hundredths
    right: Hundredths
    bottom: Hundredths
    top: Hundredths

    @classmethod
    def of(cls, each: Hundredths) -> Trims:
        """The same on all four sides."""
        return cls(each, each, each, each)


@dataclass(frozen=True, slots=True)
class Board:
    """A board as it is bought."""

    length: Hundredths
    width: Hundredths
    trims: Trims = Trims(10 * MM, 10 * MM, 10 * MM, 10 * MM)

    @classmethod
    def of(cls, one_mm: float, other_mm: float, trim_mm: float = 10) -> Board:
        """A board from its sides in either order: the long one is its length."""
        sides = sorted((hundredths(one_mm), hundredths(other_mm)))
        return cls(sides[1], sides[0], Trims.of(hundredths(trim_mm)))

    @property
    def usable(self) -> Rect:
        """What is left between the trims."""
        trims = self.trims
        return Rect(
            trims.left,
            trims.bottom,
            self.length - trims.left - trims.right,
            self.width - trims.bottom - trims.top,
        )

    @property
    def area(self) -> int:
        return self.length * self.width


@dataclass(frozen=True, slots=True)
class Band:
    """An edge band: its name in the order, and its thickness where the order tells one."""

    name: str
    thickness: Hundredths = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A line of the order. ``length`` and ``width`` are what the saw cuts.

    The finished size differs where edge bands are put on afterwards. ``up`` and ``lo`` run along
    the length, ``sx`` and ``dx`` along the width.
    """

    name: str
    length: Hundredths
    width: Hundredths
    quantity: int
    grain: int = 0
    finished_length: Hundredths = 0
    finished_width: Hundredths = 0
    up: Band | None = None
    lo: Band | None = None
    sx: Band | None = None
    dx: Band | None = None
    notes: tuple[str, ...] = ()

    @property
    def may_turn(self) -> bool:
        return self.grain in TURNING_GRAINS

    @property
    def area(self) -> int:
        return self.length * self.width

    @property
    def finished(self) -> tuple[Hundredths, Hundredths]:
        """Length and width once banded."""
        return self.finished_length or self.length, self.finished_width or self.width


@dataclass(frozen=True, slots=True)
class Demand:
    """Everything a plan is made from: one material, its board, the saw blade and the parts."""

    name: str
    board: Board
    parts: tuple[Part, ...]
    kerf: Hundredths = 4 * MM
    material: str = ""
    offcut_length: Hundredths = 400 * MM  # an offcut at least so long
    offcut_width: Hundredths = 150 * MM  # and so wide is worth keeping
    board_price: float = 0.0
    band_price_per_metre: float = 0.0

    @property
    def pieces(self) -> int:
        return sum(part.quantity for part in self.parts)

    def is_reusable(self, rect: Rect) -> bool:
        """Whether a rest goes to the rack and not into the bin."""
        short, long = sorted((rect.length, rect.width))
        return long >= self.offcut_length and short >= self.offcut_width


@dataclass(frozen=True, slots=True)
class Placement:
    """One piece on a board; ``part`` counts the demand's parts from 0."""

    part: int
    rect: Rect
    turned: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut through a whole panel, edge to edge.

    The panel's first piece ends at ``at`` (x of a cross cut, y of a rip cut); the blade takes the
    kerf behind it. ``stage`` counts how often the direction has changed on the way to the panel.
    """

    panel: Rect
    runs: Runs
    at: Hundredths
    stage: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A board's cuts in their order, and what they leave; sawn ``times`` over."""

    times: int
    placements: tuple[Placement, ...]
    offcuts: tuple[Rect, ...]
    cuts: tuple[Cut, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """How a demand is cut, by which strategy, and how few boards could do at the very least."""

    demand: Demand
    strategy: str
    layouts: tuple[Layout, ...]
    least_boards: int
    others: tuple[tuple[str, int], ...] = ()  # what each strategy needed: its name, its boards

    @property
    def boards(self) -> int:
        return sum(layout.times for layout in self.layouts)


def check_demand(demand: Demand) -> None:
    """Refuse, with a sentence that names the culprit, what cannot be planned."""
    usable = demand.board.usable
    if min(demand.board.length, demand.board.width) <= 0 or demand.kerf < 0:
        raise Unplannable(f"{demand.name}: board sizes must be positive, the kerf not negative")
    if min(usable.length, usable.width) <= 0 or min(_sides(demand.board.trims)) < 0:
        raise Unplannable(f"{demand.name}: the trims leave nothing of the board")
    if not demand.parts:
        raise Unplannable(f"{demand.name}: there are no parts to cut")
    if demand.pieces > MOST_PIECES:
        raise Unplannable(
            f"{demand.name}: {demand.pieces} pieces in one plan; at most {MOST_PIECES} are taken"
        )
    for part in demand.parts:
        _check_part(demand, part, usable)


def _check_part(demand: Demand, part: Part, usable: Rect) -> None:
    if part.quantity <= 0 or part.length <= 0 or part.width <= 0:
        raise Unplannable(
            f"part {part.name!r}: sizes and quantity must be positive,"
            f" got {mm_text(part.length)} × {mm_text(part.width)} mm, {part.quantity} pieces"
        )
    if part.grain not in range(4):
        raise Unplannable(f"part {part.name!r}: the grain must be 0, 1, 2 or 3, got {part.grain}")
    if not ways(part, usable):
        fixed = "" if part.may_turn else f" and grain {part.grain} forbids turning it"
        raise PartTooLarge(
            f"part {part.name!r} ({mm_text(part.length)} × {mm_text(part.width)} mm) is larger than"
            f" the board: {mm_text(usable.length)} × {mm_text(usable.width)} mm are left of"
            f" {mm_text(demand.board.length)} × {mm_text(demand.board.width)} mm inside the"
            f" trims{fixed}"
        )


def _sides(trims: Trims) -> Sequence[Hundredths]:
    return (trims.left, trims.right, trims.bottom, trims.top)


def ways(part: Part, room: Rect) -> tuple[bool, ...]:
    """The ways, turned or not, in which a part may lie in a room; none if it does not fit."""
    lying = ((False, part.length, part.width), (True, part.width, part.length))
    allowed = lying if part.may_turn and part.length != part.width else lying[:1]
    return tuple(
        turned for turned, along, across in allowed if along <= room.length and across <= room.width
    )
