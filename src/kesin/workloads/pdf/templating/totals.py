"""The sums that documents show: reckoned here in decimals, so that a template only prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from kesin.workloads.pdf.templating.filters import Unprintable, amount, in_words, rounded

Object = Mapping[str, Any]


class Line(NamedTuple):
    """A line of an invoice with what it comes to."""

    item: Object
    gross: Decimal
    discount: Decimal
    net: Decimal


class Vat(NamedTuple):
    """All that is taxed at one rate."""

    rate: Decimal
    base: Decimal
    tax: Decimal


class Sums(NamedTuple):
    """An invoice, added up."""

    lines: tuple[Line, ...]
    gross: Decimal
    discount: Decimal
    net: Decimal
    vat: tuple[Vat, ...]
    tax: Decimal
    total: Decimal


def invoice_sums(lines: Sequence[Object], stated: object = None) -> Sums:
    """Each line is rounded to cents, VAT once for each rate.

    ``stated`` is what the sender makes it: an invoice that contradicts its sender is not made.
    """
    reckoned = []
    bases: dict[Decimal, Decimal] = {}
    for item in lines:
        gross = rounded(amount(item["quantity"]) * amount(item["unit_price"]))
        discount = rounded(gross * amount(item.get("discount_percent", 0)) / 100)
        net = gross - discount
        reckoned.append(Line(item, gross, discount, net))
        rate = amount(item["vat_percent"]).normalize()
        bases[rate] = bases.get(rate, Decimal(0)) + net
    vat = tuple(Vat(rate, base, rounded(base * rate / 100)) for rate, base in sorted(bases.items()))
    net = sum((line.net for line in reckoned), Decimal(0))
    tax = sum((one.tax for one in vat), Decimal(0))
    if stated is not None and rounded(stated) != net + tax:
        raise Unprintable("the lines do not add up to the stated total")
    return Sums(
        lines=tuple(reckoned),
        gross=sum((line.gross for line in reckoned), Decimal(0)),
        discount=sum((line.discount for line in reckoned), Decimal(0)),
        net=net,
        vat=vat,
        tax=tax,
        total=net + tax,
    )


class Piece(NamedTuple):
    """A rectangle on a board, with room for its label known."""

    item: Object
    x: float
    y: float
    length: float
    width: float
    letter: float  # height of the label's letters; 0: there is no room
    small: float  # of the size below it; 0: no room
    upright: bool  # written along the width
    bands: tuple[tuple[str, float, float, float, float], ...]  # band, x1, y1, x2, y2


class Board(NamedTuple):
    """A board and what is cut from it; measures are millimetres of the board."""

    item: Object
    length: float
    width: float
    times: int  # it is cut so often
    unit: float  # so many millimetres of the board are one on paper
    parts: tuple[Piece, ...]
    offcuts: tuple[Piece, ...]
    yield_percent: Decimal


class Plan(NamedTuple):
    """All boards, and what they come to."""

    boards: tuple[Board, ...]
    board_count: int
    part_count: int
    board_m2: Decimal
    part_m2: Decimal
    offcut_m2: Decimal
    yield_percent: Decimal
    bands: tuple[tuple[str, Decimal], ...]  # name and metres, by name


_SIDES: Final = ("up", "lo", "sx", "dx")
_PAPER_MM: Final = 182.0  # width of a drawing
_TALLEST_MM: Final = 150.0
_LETTER_MM: Final = (1.7, 3.0)  # smallest and largest on paper
_LETTER_WIDTH: Final = 0.66  # of its height, on average
_MM2: Final = Decimal(1_000_000)


def cutting_sums(boards: Sequence[Object]) -> Plan:
    """Lay the boards out for drawing and add them up; a part off its board is an error."""
    drawn = tuple(_board(board) for board in boards)
    metres: Counter[str] = Counter()
    areas = {"board": Decimal(0), "part": Decimal(0), "offcut": Decimal(0)}
    for board in drawn:
        areas["board"] += _area(board.item) * board.times
        areas["part"] += sum((_area(one.item) for one in board.parts), Decimal(0)) * board.times
        areas["offcut"] += sum((_area(one.item) for one in board.offcuts), Decimal(0)) * board.times
        for part in board.parts:
            for band, x1, y1, x2, y2 in part.bands:
                metres[band] += round((abs(x2 - x1) + abs(y2 - y1)) * board.times)
    return Plan(
        boards=drawn,
        board_count=sum(board.times for board in drawn),
        part_count=sum(board.times * len(board.parts) for board in drawn),
        board_m2=areas["board"] / _MM2,
        part_m2=areas["part"] / _MM2,
        offcut_m2=areas["offcut"] / _MM2,
        yield_percent=_share(areas["part"], areas["board"]),
        bands=tuple((band, Decimal(mm) / 1000) for band, mm in sorted(metres.items())),
    )


def _board(item: Object) -> Board:
    length, width = float(item["length_mm"]), float(item["width_mm"])
    unit = max(length / _PAPER_MM, width / _TALLEST_MM)
    pieces = {
        kind: tuple(_piece(one, length, width, unit) for one in item.get(kind, ()))
        for kind in ("parts", "offcuts")
    }
    cut = sum((_area(one.item) for one in pieces["parts"]), Decimal(0))
    return Board(
        item=item,
        length=length,
        width=width,
        times=int(item.get("count", 1)),
        unit=unit,
        parts=pieces["parts"],
        offcuts=pieces["offcuts"],
        yield_percent=_share(cut, _area(item)),
    )


def _piece(item: Object, board_length: float, board_width: float, unit: float) -> Piece:
    x, y = float(item["x_mm"]), float(item["y_mm"])
    length, width = float(item["length_mm"]), float(item["width_mm"])
    if x + length > board_length + 0.01 or y + width > board_width + 0.01:
        raise Unprintable("a part or an offcut does not lie on its board")
    upright = width > length * 1.25
    along, across = (width, length) if upright else (length, width)
    label = str(item.get("label", ""))
    size = f"{length:.0f} × {width:.0f}"
    small = _fitting(size, along, across / 2.9, unit)
    letter = _fitting(label, along, across / (2.9 if small else 1.5), unit)
    if not letter:
        small, letter = 0.0, _fitting(label, along, across / 1.5, unit)
    bands = item.get("bands", {})
    lines = {
        "up": (x, y, x + length, y),
        "lo": (x, y + width, x + length, y + width),
        "sx": (x, y, x, y + width),
        "dx": (x + length, y, x + length, y + width),
    }
    sides = tuple((str(bands[side]), *lines[side]) for side in _SIDES if bands.get(side))
    return Piece(item, x, y, length, width, letter, min(small, letter), upright, sides)


def _fitting(text: str, along: float, across: float, unit: float) -> float:
    """The height of letters that fit, between the smallest and the largest; 0 if none does."""
    smallest, largest = (one * unit for one in _LETTER_MM)
    height = min(largest, across, 0.92 * along / (_LETTER_WIDTH * max(len(text), 1)))
    return round(height, 1) if text and height >= smallest else 0.0


def _area(item: Object) -> Decimal:
    return amount(item["length_mm"]) * amount(item["width_mm"])


def _share(part: Decimal, whole: Decimal) -> Decimal:
    return rounded(100 * part / whole, 1) if whole else Decimal(0)


class Share(NamedTuple):
    """One of several counts, and its part of all."""

    name: str
    many: int
    percent: Decimal


class Tally(NamedTuple):
    """Counts by name, in the order given."""

    total: int
    shares: tuple[Share, ...]


def tally(counts: Mapping[str, int], order: Sequence[str]) -> Tally:
    """How many there are, and the share of each name."""
    total = sum(int(counts.get(name, 0)) for name in order)
    shares = []
    for name in order:
        count = int(counts.get(name, 0))
        shares.append(Share(name, count, _share(Decimal(count), Decimal(total))))
    return Tally(total, tuple(shares))


RECKONING: Final[dict[str, Callable[..., Any]]] = {
    "invoice_sums": invoice_sums,
    "cutting_sums": cutting_sums,
    "tally": tally,
    "in_words": in_words,
}
