"""Verifies a plan: simulates its cuts, and checks pieces without them; shares only the model."""

from collections import Counter
from collections.abc import Iterator

from kesin.workloads.optiplan.optimizer import model


def find_faults(plan: model.CuttingPlan) -> list[str]:
    """Return what is wrong with a plan, a sentence each; empty if the plan is valid."""
    demand, messages = plan.demand, list(_check_quantities(plan))
    for number, layout in enumerate(plan.layouts, start=1):
        where = f"layout {number}"
        if layout.times < 1:
            messages.append(f"{where}: sawn {layout.times} times")
        placements = [each for each in layout.placements if 0 <= each.part < len(demand.parts)]
        faults = (
            *(fault for placement in placements for fault in _check_piece(demand, placement)),
            *_check_spacing(demand, placements),
            *_check_cuts(demand, layout),
        )
        messages += [f"{where}: {fault}" for fault in faults]
    return messages


def _check_quantities(plan: model.CuttingPlan) -> Iterator[str]:
    planned: Counter[int] = Counter()
    for layout in plan.layouts:
        for placement in layout.placements:
            planned[placement.part] += layout.times
    for number, part in enumerate(plan.demand.parts):
        if planned[number] != part.quantity:
            ordered = f"{part.quantity} of part {part.name!r} ordered"
            yield f"quantity: {ordered}, {planned[number]} planned"
    for number in sorted(planned):
        if not 0 <= number < len(plan.demand.parts):
            yield f"quantity: part number {number} was never ordered"


def _check_piece(demand: model.Demand, placement: model.Placement) -> Iterator[str]:
    part = demand.parts[placement.part]
    rect, board, trims = placement.rect, demand.board, demand.board.trims
    if placement.turned and part.grain not in model.TURNABLE_GRAINS:
        yield f"grain: part {part.name!r} has grain {part.grain} and is turned"
    expected = (part.width, part.length) if placement.turned else (part.length, part.width)
    if (rect.length, rect.width) != expected:
        yield f"size: part {part.name!r} is {_size(rect)}, not {model.size_text(*expected)}"
    too_low = rect.x < trims.left or rect.y < trims.bottom
    if too_low or rect.right > board.length - trims.right or rect.top > board.width - trims.top:
        yield f"trim: part {part.name!r} at {_position(rect)} reaches into the trim"


def _check_spacing(demand: model.Demand, placements: list[model.Placement]) -> Iterator[str]:
    """Yield pairs of pieces that overlap, or leave less than the kerf between them."""
    rects = sorted((placement.rect, demand.parts[placement.part].name) for placement in placements)
    for index, (rect, name) in enumerate(rects):
        for other, other_name in rects[index + 1 :]:
            if other.x >= rect.x + rect.length + demand.kerf:
                break
            gap_x = max(other.x - rect.x - rect.length, rect.x - other.x - other.length)
            gap_y = max(other.y - rect.y - rect.width, rect.y - other.y - other.width)
            gap = max(gap_x, gap_y)
            if gap < demand.kerf:
                pair = f"{name!r} at {_position(rect)} and {other_name!r} at {_position(other)}"
                fault = "overlap:" if gap < 0 else f"kerf: {model.mm_text(gap)} mm between"
                yield f"{fault} {pair}"


def _check_cuts(demand: model.Demand, layout: model.Layout) -> Iterator[str]:
    """Simulate the cuts and compare the resulting panels with the pieces and offcuts listed."""
    board, trims = demand.board, demand.board.trims  # not `usable`: the strategies start from it
    length, width = board.length - trims.left - trims.right, board.width - trims.bottom - trims.top
    panels = Counter([model.Rect(trims.left, trims.bottom, length, width)])
    for order, cut in enumerate(layout.cuts, start=1):
        if not panels[cut.panel]:
            where = _position(cut.panel)
            yield f"guillotine: cut {order} is through a panel that does not exist ({where})"
            return
        if not (pieces := cut.split(demand.kerf)):
            yield f"guillotine: cut {order} at {model.mm_text(cut.at)} misses its panel"
            return
        panels[cut.panel] -= 1
        panels.update(pieces)
    listed = Counter(placement.rect for placement in layout.placements)
    listed.update(layout.offcuts)
    for rect in sorted(listed - panels):
        yield f"guillotine: no cuts free the {_size(rect)} at {_position(rect)}"
    for rect in sorted(panels - listed):
        yield f"offcut: {_size(rect)} at {_position(rect)} is left over and not reported"
    stages = sorted({cut.stage for cut in layout.cuts})  # they count changes of direction
    if stages != list(range(1, len(stages) + 1)):
        yield f"guillotine: the stages given are {stages}"


def _size(rect: model.Rect) -> str:
    return model.size_text(rect.length, rect.width)


def _position(rect: model.Rect) -> str:
    return f"({model.mm_text(rect.x)}, {model.mm_text(rect.y)})"
