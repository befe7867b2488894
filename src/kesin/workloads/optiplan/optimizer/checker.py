"""The proof of a plan: every piece is there, whole, the right way round, and can be sawn.

Shares nothing with the strategies but the words of the model. The cuts are made one after the
other on a picture of the board: each must find its panel there and go through it from edge to
edge. What lies on the table at the end must be exactly the pieces and offcuts the plan names. The
pieces are then looked at once more without the cuts, as a customer would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kesin.workloads.optiplan.optimizer.model import (
    TURNING_GRAINS,
    Cut,
    Demand,
    Layout,
    Placement,
    Plan,
    Rect,
    mm_text,
)


def faults(plan: Plan) -> list[str]:
    """What is wrong with a plan, a sentence each; empty if it holds."""
    found = list(_quantities(plan))
    for number, layout in enumerate(plan.layouts, start=1):
        where = f"layout {number}"
        if layout.times < 1:
            found.append(f"{where}: sawn {layout.times} times")
        pieces = [one for one in layout.placements if 0 <= one.part < len(plan.demand.parts)]
        for placement in pieces:
            found += [f"{where}: {fault}" for fault in _piece(plan.demand, placement)]
        found += [f"{where}: {fault}" for fault in _apart(plan.demand, pieces)]
        found += [f"{where}: {fault}" for fault in _cuts(plan.demand, layout)]
    return found


def _quantities(plan: Plan) -> Iterator[str]:
    made: Counter[int] = Counter()
    for layout in plan.layouts:
        for placement in layout.placements:
            made[placement.part] += layout.times
    for number, part in enumerate(plan.demand.parts):
        if made[number] != part.quantity:
            yield f"quantity: {part.quantity} of part {part.name!r} ordered, {made[number]} planned"
    for number in sorted(made):
        if not 0 <= number < len(plan.demand.parts):
            yield f"quantity: part number {number} was never ordered"


def _piece(demand: Demand, placement: Placement) -> Iterator[str]:
    part = demand.parts[placement.part]
    rect, board = placement.rect, demand.board
    if placement.turned and part.grain not in TURNING_GRAINS:
        yield f"grain: part {part.name!r} has grain {part.grain} and is turned"
    told = (part.width, part.length) if placement.turned else (part.length, part.width)
    if (rect.length, rect.width) != told:
        wanted = f"{mm_text(told[0])} × {mm_text(told[1])}"
        yield f"size: part {part.name!r} is {_size(rect)}, not {wanted}"
    if (
        rect.x < board.trims.left
        or rect.y < board.trims.bottom
        or rect.x + rect.length > board.length - board.trims.right
        or rect.y + rect.width > board.width - board.trims.top
    ):
        yield f"trim: part {part.name!r} at {_at(rect)} reaches into the trim"


def _apart(demand: Demand, placements: list[Placement]) -> Iterator[str]:
    """Every two pieces: not over each other, and the blade fits between."""
    rects = sorted((one.rect, demand.parts[one.part].name) for one in placements)
    for index, (one, name) in enumerate(rects):
        for other, neighbour in rects[index + 1 :]:
            if other.x >= one.x + one.length + demand.kerf:
                break
            beside = max(other.x - one.x - one.length, one.x - other.x - other.length)
            over = max(other.y - one.y - one.width, one.y - other.y - other.width)
            gap = max(beside, over)
            if gap < 0:
                yield f"overlap: {name!r} at {_at(one)} and {neighbour!r} at {_at(other)}"
            elif gap < demand.kerf:
                yield (
                    f"kerf: {mm_text(gap)} mm between {name!r} at {_at(one)} and"
                    f" {neighbour!r} at {_at(other)}"
                )


def _cuts(demand: Demand, layout: Layout) -> Iterator[str]:
    """Saw the board as told, and compare what is left with what was promised."""
    trims, board = demand.board.trims, demand.board
    whole = Rect(
        trims.left,
        trims.bottom,
        board.length - trims.left - trims.right,
        board.width - trims.bottom - trims.top,
    )
    table = Counter([whole])
    for order, cut in enumerate(layout.cuts, start=1):
        if not table[cut.panel]:
            yield f"guillotine: cut {order} is through a panel that is not there ({_at(cut.panel)})"
            return
        parted = _parted(cut, demand.kerf)
        if parted is None:
            yield f"guillotine: cut {order} at {mm_text(cut.at)} misses its panel"
            return
        table[cut.panel] -= 1
        table.update(parted)
    told = Counter(one.rect for one in layout.placements)
    told.update(layout.offcuts)
    for rect in sorted(told - table):
        yield f"guillotine: no cuts free the {_size(rect)} at {_at(rect)}"
    for rect in sorted(table - told):
        yield f"offcut: {_size(rect)} at {_at(rect)} is left over and not told"
    yield from _stages(layout)


def _stages(layout: Layout) -> Iterator[str]:
    """A stage is a number of changes of direction, so it starts at 1 and leaves none out."""
    seen = [cut.stage for cut in layout.cuts]
    if seen and (min(seen) != 1 or sorted(set(seen)) != list(range(1, max(seen) + 1))):
        yield f"guillotine: the stages told are {sorted(set(seen))}"


def _parted(cut: Cut, kerf: int) -> list[Rect] | None:
    """The two pieces of a panel; the second is dust if the blade reaches over its edge."""
    panel = cut.panel
    if cut.runs == "rip":
        low, high = cut.at - panel.y, panel.y + panel.width - cut.at - kerf
        first = Rect(panel.x, panel.y, panel.length, low)
        second = Rect(panel.x, cut.at + kerf, panel.length, high)
        inside = panel.y < cut.at < panel.y + panel.width
    else:
        low, high = cut.at - panel.x, panel.x + panel.length - cut.at - kerf
        first = Rect(panel.x, panel.y, low, panel.width)
        second = Rect(cut.at + kerf, panel.y, high, panel.width)
        inside = panel.x < cut.at < panel.x + panel.length
    if not inside:
        return None
    return [first, second] if high > 0 else [first]


def _size(rect: Rect) -> str:
    return f"{mm_text(rect.length)} × {mm_text(rect.width)}"


def _at(rect: Rect) -> str:
    return f"({mm_text(rect.x)}, {mm_text(rect.y)})"
