"""Verifies a plan: simulates its cuts, and checks pieces without them; shares only the model."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kesin.workloads.optiplan.optimizer import model


def find_faults(plan: model.CuttingPlan) -> list[str]:
    """Return what is wrong with a plan, a sentence each; empty if the plan is valid."""
    demand, messages = plan.demand, [*_check_quantities(plan), *_check_boards(plan)]
    for number, layout in enumerate(plan.layouts, start=1):
        where = f"layout {number}"
        if layout.times < 1:
            messages.append(f"{where}: sawn {layout.times} times")
        if not 0 <= layout.board < len(demand.boards):
            messages.append(f"{where}: board: there is no board {layout.board}")
            continue
        board = demand.boards[layout.board]
        placements = [each for each in layout.placements if 0 <= each.part < len(demand.parts)]
        pieces = (fault for each in placements for fault in _check_piece(demand, board, each))
        faults = (*pieces, *_check_spacing(demand, placements), *_check_cuts(demand, board, layout))
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


def _check_boards(plan: model.CuttingPlan) -> Iterator[str]:
    """Yield the boards and offcuts of which more are planned than there are."""
    planned = plan.board_counts
    for number, board in enumerate(plan.demand.boards):
        if board.quantity is not None and planned[number] > board.quantity:
            what = f"offcut {board.offcut!r}" if board.offcut else f"board {board.code!r}"
            yield f"board: {planned[number]} of {what} planned, {board.quantity} in store"


def _check_piece(demand: model.Demand, board: model.Board, placement: model.Placement) -> Iterator[str]:
    part = demand.parts[placement.part]
    rect, trims = placement.rect, board.trims
    if placement.turned and part.grain not in model.TURNABLE_GRAINS:
        yield f"grain: part {part.name!r} has grain {part.grain} and is turned"
    expected = part.size(turned=placement.turned)
    if (rect.length, rect.width) != expected:
        yield f"size: part {part.name!r} is {_size(rect)}, not {model.size_text(*expected)}"
    if min(expected) < demand.saw.smallest_piece:
        yield f"saw: part {part.name!r} is smaller than smallest_piece"
    too_low = rect.x < trims.left or rect.y < trims.bottom
    if too_low or rect.right > board.length - trims.right or rect.top > board.width - trims.top:
        yield f"trim: part {part.name!r} at {_position(rect)} reaches into the trim"


def _check_spacing(demand: model.Demand, placements: list[model.Placement]) -> Iterator[str]:
    """Yield pairs of pieces that overlap, or leave less than the kerf between them."""
    saw = demand.saw
    rects = sorted((placement.rect, demand.parts[placement.part].name) for placement in placements)
    for index, (rect, name) in enumerate(rects):
        for other, other_name in rects[index + 1 :]:
            if other.x >= rect.x + rect.length + saw.kerf_cross:
                break
            gap_x = max(other.x - rect.x - rect.length, rect.x - other.x - other.length)
            gap_y = max(other.y - rect.y - rect.width, rect.y - other.y - other.width)
            if gap_x < saw.kerf_cross and gap_y < saw.kerf_rip:
                pair = f"{name!r} at {_position(rect)} and {other_name!r} at {_position(other)}"
                gap = max(gap_x, gap_y)
                fault = "overlap:" if gap < 0 else f"kerf: {model.mm_text(gap)} mm between"
                yield f"{fault} {pair}"


class _Origin(NamedTuple):
    """How a panel was cut free: in which stage, counted here, and in which direction."""

    stage: int = 0
    runs: str = ""
    strip: model.Rect | None = None  # that fell in the first stage and holds the panel


def _check_cuts(demand: model.Demand, board: model.Board, layout: model.Layout) -> Iterator[str]:
    """Simulate the cuts and compare the resulting panels with the pieces and offcuts listed."""
    trims = board.trims  # not `usable`: the strategies start from it
    length, width = board.length - trims.left - trims.right, board.width - trims.bottom - trims.top
    panels = {model.Rect(trims.left, trims.bottom, length, width): _Origin()}
    for order, cut in enumerate(layout.cuts, start=1):
        if (origin := panels.pop(cut.panel, None)) is None:
            where = _position(cut.panel)
            yield f"guillotine: cut {order} is through a panel that does not exist ({where})"
            return
        if not (pieces := cut.split(demand.saw)):
            yield f"guillotine: cut {order} at {model.mm_text(cut.at)} misses its panel"
            return
        stage = origin.stage + (origin.runs != cut.runs)
        if stage != cut.stage:
            yield f"guillotine: the stage of cut {order} is {stage}, and {cut.stage} is given"
        for piece in pieces:
            panels[piece] = _Origin(stage, cut.runs, piece if stage == 1 else origin.strip)
    listed = Counter([*(placement.rect for placement in layout.placements), *layout.offcuts])
    for rect in sorted(listed - Counter(panels.keys())):
        yield f"guillotine: no cuts free the {_size(rect)} at {_position(rect)}"
    for rect in sorted(panels.keys() - listed.keys()):
        yield f"offcut: {_size(rect)} at {_position(rect)} is left over and not reported"
    stages = max((origin.stage for origin in panels.values()), default=0)
    if stages:
        yield from _check_first_stage(demand.saw, board, layout, stages)
        holding = {panels[each.rect].strip for each in layout.placements if each.rect in panels}
        yield from _check_strips(demand.saw, layout, filter(None, holding))


def _check_first_stage(saw: model.SawProfile, board: model.Board, layout: model.Layout, stages: int) -> Iterator[str]:
    """Yield what the profile forbids; a first stage in the other direction is a head cut."""
    runs = layout.cuts[0].runs
    is_as_ruled = saw.first_cut in {"any", runs}
    if not is_as_ruled and not saw.head_cut:
        yield f"saw: the first cut is a {runs} cut, and first_cut is {saw.first_cut}"
    heads = saw.head_cut and saw.first_cut != runs
    if saw.max_stages and stages > saw.max_stages + heads:
        head = " and a head cut" if saw.head_cut else ""
        yield f"saw: {stages} stages, and max_stages is {saw.max_stages}{head}"
    line, wide = (board.length, board.width) if runs == "rip" else (board.width, board.length)
    if saw.largest_cut and line > saw.largest_cut:
        yield f"saw: a first cut of {model.mm_text(line)}, above largest_cut"
    if saw.largest_rip and wide > saw.largest_rip:
        yield f"saw: a first cut through {model.mm_text(wide)}, above largest_rip"


def _check_strips(saw: model.SawProfile, layout: model.Layout, strips: Iterable[model.Rect]) -> Iterator[str]:
    for strip in sorted(strips):
        size = strip.width if layout.cuts[0].runs == "rip" else strip.length
        if size < saw.smallest_strip:
            yield f"saw: a strip of {model.mm_text(size)} holds pieces, below smallest_strip"


def _size(rect: model.Rect) -> str:
    return model.size_text(rect.length, rect.width)


def _position(rect: model.Rect) -> str:
    return f"({model.mm_text(rect.x)}, {model.mm_text(rect.y)})"
