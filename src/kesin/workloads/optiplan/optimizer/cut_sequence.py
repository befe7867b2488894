"""Turns placed pieces into cuts, ordered by stage, as at the saw, and the panels they leave."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.problem import STRIP, Drop, Fillings, Start, find_starts


def build_layouts(
    demand: model.Demand, members: Sequence[Sequence[int]], fillings: Fillings, boards: Sequence[int] = ()
) -> tuple[model.Layout, ...]:
    """Build boards with their cuts, equal ones once; ``members``: as `build_tasks` returns them.

    ``boards`` are the demand's boards that the fillings are cut from; the first one if not given.
    """
    stock = [Counter(parts) for parts in members]
    layout_counts: Counter[model.Layout] = Counter()
    sorted_fillings = (tuple(map(Drop._make, sorted(filling))) for filling in fillings)
    numbers = boards or [0] * len(fillings)
    equal = Counter(zip(numbers, sorted_fillings, strict=True))
    for (board, filling), count in equal.items():
        cuts, pieces, offcuts = _saw_board(demand, demand.boards[board], filling)
        remaining = count
        while remaining:
            times, parts = _assign_parts(stock, pieces, remaining)
            placements = [
                model.Placement(part, rect, drop.turned) for part, (drop, rect) in zip(parts, pieces, strict=True)
            ]
            placements.sort(key=lambda piece: (piece.rect.y, piece.rect.x))
            layout_counts[model.Layout(1, tuple(placements), offcuts, cuts, board)] += times
            remaining -= times
    return tuple(replace(layout, times=layout_counts[layout]) for layout in sorted(layout_counts, key=_layout_order))


def _layout_order(layout: model.Layout) -> tuple[int, int, list[tuple[model.Rect, int]]]:
    """The sort key of a layout: the fullest board first."""
    pieces = [(placement.rect, placement.part) for placement in layout.placements]
    return -sum(rect.area for rect, _ in pieces), pieces[0][1], pieces


def _assign_parts(
    stock: list[Counter[int]], pieces: Sequence[tuple[Drop, model.Rect]], max_boards: int
) -> tuple[int, list[int]]:
    """Assign a part to each piece, for as many equal boards as possible, and reduce the stock."""
    for times in range(max_boards, 0, -1):
        trial = {drop.kind: stock[drop.kind].copy() for drop, _ in pieces}
        parts: list[int] = []
        for drop, _ in pieces:
            remaining = trial[drop.kind]
            part = next((number for number in sorted(remaining) if remaining[number] >= times), -1)
            if part < 0:
                break
            remaining[part] -= times
            parts.append(part)
        else:
            for kind, remaining in trial.items():
                stock[kind] = remaining
            return times, parts
    raise AssertionError("a filling holds pieces that were not ordered")


class _Panel(NamedTuple):
    """A panel to be cut, with its kerf; ``drop``: its first cut is made, the piece is next."""

    x: int
    y: int
    length: int
    width: int
    stage: int = 1
    runs: model.CutDirection | None = None
    drop: Drop | None = None
    rips: bool = False  # the direction of the cut that frees the piece


def _saw_board(
    demand: model.Demand, board: model.Board, filling: Sequence[Drop]
) -> tuple[tuple[model.Cut, ...], list[tuple[Drop, model.Rect]], tuple[model.Rect, ...]]:
    """Return the cuts of a board in the order of the saw, its pieces and its offcuts."""
    usable, saw = board.usable, demand.saw
    starts = {start.rips: start for start in find_starts(demand, board)}
    drops = {drop[:4]: drop for drop in filling}
    cuts: list[model.Cut] = []
    pieces: list[tuple[int, Drop, model.Rect]] = []  # with the stage that frees them
    offcuts: list[model.Rect] = []

    def to_rect(panel: _Panel) -> model.Rect:
        x, y = usable.x + panel.x, usable.y + panel.y
        return model.Rect(x, y, panel.length - saw.kerf_cross, panel.width - saw.kerf_rip)

    panels = [_Panel(0, 0, usable.length + saw.kerf_cross, usable.width + saw.kerf_rip)]
    while panels:
        panel = panels.pop()
        rect = to_rect(panel)
        drop = panel.drop or drops.get(panel[:4])
        if drop is None:
            offcuts += [rect] if rect.length > 0 < rect.width else []
            continue
        rips = panel.rips if panel.drop else _rips(drops, drop, panel, starts)
        runs: model.CutDirection = "rip" if rips else "cross"
        size, whole = (drop.across, panel.width) if rips else (drop.along, panel.length)
        first = panel
        if size != whole:  # else there is nothing to cut off
            stage = panel.stage + (panel.runs not in {None, runs})
            at = (rect.y if rips else rect.x) + size - saw.kerf(runs)
            cuts.append(model.Cut(rect, runs, at, stage))
            rest = panel._replace(stage=stage, runs=runs, drop=None)
            first = rest._replace(width=size) if rips else rest._replace(length=size)
            if rips:
                panels.append(rest._replace(y=rest.y + size, width=rest.width - size))
            else:
                panels.append(rest._replace(x=rest.x + size, length=rest.length - size))
        if drop.kind == STRIP:
            panels.append(first)
        elif panel.drop is None:
            panels.append(first._replace(drop=drop, rips=not rips))
        else:
            pieces.append((first.stage, drop, to_rect(first)))
    cuts.sort(key=lambda cut: cut.stage)
    pieces.sort(key=lambda piece: piece[0])
    return tuple(cuts), [(drop, rect) for _, drop, rect in pieces], tuple(sorted(offcuts))


def _rips(drops: Container[tuple[int, ...]], drop: Drop, panel: _Panel, starts: Mapping[bool, Start]) -> bool:
    """Whether the rip cut comes first; if both rests are empty, the larger offcut decides."""
    above, beside = drop.width - drop.across, drop.length - drop.along
    rests = (
        (drop.x, drop.y + drop.across, drop.length if drop.rip_first else drop.along, above),
        (drop.x + drop.along, drop.y, beside, drop.across if drop.rip_first else drop.width),
    )
    rips = drop.length * above >= drop.width * beside
    if drop.kind == STRIP or not above or not beside or any(rest in drops for rest in rests):
        return drop.rip_first
    return rips if _may_cut(panel, drop, starts, rips=rips) else drop.rip_first


def _may_cut(panel: _Panel, drop: Drop, starts: Mapping[bool, Start], *, rips: bool) -> bool:
    """Whether the saw may first cut in this direction, then across."""
    stage = panel.stage + (panel.runs not in {None, "rip" if rips else "cross"})
    if stage == 1 and (rips not in starts or (drop.across if rips else drop.along) < starts[rips].strip):
        return False
    return stage < min(start.stages for start in starts.values())
