"""The totals that documents show, computed in decimals; templates read the results by name."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from types import SimpleNamespace as Values
from typing import Any, Final

from kesin.workloads.pdf.templating import filters
from kesin.workloads.pdf.templating.filters import Unprintable, parse_amount, round_half_up

Object = Mapping[str, Any]


def invoice_sums(lines: Sequence[Object], stated: object = None) -> Values:
    """Sum up lines rounded to cents, VAT once per rate; another ``stated`` total is an error."""
    invoice_lines = []
    bases: dict[Decimal, Decimal] = {}
    for item in lines:
        gross = round_half_up(parse_amount(item["quantity"]) * parse_amount(item["unit_price"]))
        discount = round_half_up(gross * parse_amount(item.get("discount_percent", 0)) / 100)
        net = gross - discount
        invoice_lines.append(Values(item=item, gross=gross, discount=discount, net=net))
        rate = parse_amount(item["vat_percent"]).normalize()
        bases[rate] = bases.get(rate, Decimal(0)) + net
    vat = [
        Values(rate=rate, base=base, tax=round_half_up(base * rate / 100))
        for rate, base in sorted(bases.items())
    ]
    net = sum((line.net for line in invoice_lines), Decimal(0))
    tax = sum((vat_total.tax for vat_total in vat), Decimal(0))
    if stated is not None and round_half_up(stated) != net + tax:
        raise Unprintable("the lines do not add up to the stated total")
    return Values(
        lines=invoice_lines,
        gross=sum((line.gross for line in invoice_lines), Decimal(0)),
        discount=sum((line.discount for line in invoice_lines), Decimal(0)),
        net=net,
        vat=vat,
        tax=tax,
        total=net + tax,
    )


_TYPE_MM: Final = (1.7, 3.0)  # smallest and largest on paper
_CHARACTER_WIDTH: Final = 0.66  # of its height, on average
_MM2: Final = Decimal(1_000_000)


def cutting_sums(boards: Sequence[Object]) -> Values:
    """Prepare the boards for drawing and compute totals; a part off its board is an error."""
    drawn_boards = [_draw_board(board) for board in boards]
    band_mm: Counter[str] = Counter()
    board_area = part_area = offcut_area = Decimal(0)
    for board in drawn_boards:
        board_area += _area(board.item) * board.times
        part_area += _total_area(board.parts) * board.times
        offcut_area += _total_area(board.offcuts) * board.times
        for part in board.parts:
            for band, x1, y1, x2, y2 in part.bands:
                band_mm[band] += round((abs(x2 - x1) + abs(y2 - y1)) * board.times)
    return Values(
        boards=drawn_boards,
        board_count=sum(board.times for board in drawn_boards),
        part_count=sum(board.times * len(board.parts) for board in drawn_boards),
        board_m2=board_area / _MM2,
        part_m2=part_area / _MM2,
        offcut_m2=offcut_area / _MM2,
        yield_percent=_share(part_area, board_area),
        bands=tuple((band, Decimal(mm) / 1000) for band, mm in sorted(band_mm.items())),  # metres
    )


def _draw_board(item: Object) -> Values:
    """Return a board and its pieces; lengths are millimetres of the board."""
    length, width = float(item["length_mm"]), float(item["width_mm"])
    unit = max(length / 174, width / 150)  # so that it fits a drawing of 174 × 150 mm
    parts, offcuts = (
        [_draw_piece(entry, length, width, unit) for entry in item.get(kind, ())]
        for kind in ("parts", "offcuts")
    )
    return Values(
        item=item,
        length=length,
        width=width,
        times=int(item.get("count", 1)),  # number of equal boards
        unit=unit,  # millimetres of the board per millimetre on paper
        parts=parts,
        offcuts=offcuts,
        yield_percent=_share(_total_area(parts), _area(item)),
    )


def _draw_piece(item: Object, board_length: float, board_width: float, unit: float) -> Values:
    x, y = float(item["x_mm"]), float(item["y_mm"])
    length, width = float(item["length_mm"]), float(item["width_mm"])
    if x + length > board_length + 0.01 or y + width > board_width + 0.01:
        raise Unprintable("a part or an offcut is not on its board")
    upright = width > length * 1.25
    along, across = (width, length) if upright else (length, width)
    label = str(item.get("label", ""))
    size = f"{length:.0f} × {width:.0f}"
    small = _fitting_type(size, along, across / 2.9, unit)
    letter = _fitting_type(label, along, across / (2.9 if small else 1.5), unit)
    if not letter:
        small, letter = 0.0, _fitting_type(label, along, across / 1.5, unit)
    bands = item.get("bands", {})
    lines = {
        "up": (x, y, x + length, y),
        "lo": (x, y + width, x + length, y + width),
        "sx": (x, y, x, y + width),
        "dx": (x + length, y, x + length, y + width),
    }
    return Values(
        item=item,
        x=x,
        y=y,
        length=length,
        width=width,
        letter=letter,  # type size of the label; 0: no space
        small=min(small, letter),  # type size of the dimensions below it; 0: no space
        upright=upright,  # written along the width
        bands=[(str(bands[side]), *line) for side, line in lines.items() if bands.get(side)],
    )


def _fitting_type(text: str, along: float, across: float, unit: float) -> float:
    """Return the largest type size that fits, within the limits; 0 if none does."""
    smallest, largest = (limit * unit for limit in _TYPE_MM)
    height = min(largest, across, 0.92 * along / (_CHARACTER_WIDTH * max(len(text), 1)))
    return round(height, 1) if text and height >= smallest else 0.0


def _area(item: Object) -> Decimal:
    return parse_amount(item["length_mm"]) * parse_amount(item["width_mm"])


def _total_area(pieces: Iterable[Values]) -> Decimal:
    return sum((_area(piece.item) for piece in pieces), Decimal(0))


def _share(part: Decimal, whole: Decimal) -> Decimal:
    return round_half_up(100 * part / whole, 1) if whole else Decimal(0)


def tally(counts: Mapping[str, int], order: Sequence[str]) -> Values:
    listed = [(name, int(counts.get(name, 0))) for name in order]
    total = sum(count for _, count in listed)
    shares = [
        Values(name=name, many=count, percent=_share(Decimal(count), Decimal(total)))
        for name, count in listed
    ]
    return Values(total=total, shares=shares)


TEMPLATE_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    each.__name__: each for each in (invoice_sums, cutting_sums, tally, filters.in_words)
}
