"""The cut sequence: turns placed pieces into ordered cuts and the panels each cut leaves.

Cuts are ordered by stage, as a panel saw works: first all cuts in one direction through the board,
then each strip by itself, then the panels that have to be turned once more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kesin.workloads.optiplan.optimizer import model
from kesin.workloads.optiplan.optimizer.problem import Drop, Fillings


def build_layouts(
    demand: model.Demand, members: Sequence[Sequence[int]], fillings: Fillings
) -> tuple[model.Layout, ...]:
    """Build the boards with their cuts; equal boards are one layout.

    ``members`` lists the parts of each kind, as ``build_task`` returns them.
    """
    stock = [Counter(parts) for parts in members]
    board_counts = Counter(tuple(sorted(filling)) for filling in fillings)
    layout_counts: Counter[model.Layout] = Counter()
    for filling, boards in board_counts.items():
        cuts, pieces, offcuts = _saw_board(demand, filling)
        remaining = boards
        while remaining:
            times, parts = _assign_parts(stock, pieces, remaining)
            placements = [
                model.Placement(part, rect, drop.turned)
                for part, (drop, rect) in zip(parts, pieces, strict=True)
            ]
            placements.sort(key=lambda piece: (piece.rect.y, piece.rect.x))
            layout_counts[model.Layout(1, tuple(placements), offcuts, cuts)] += times
            remaining -= times
    return tuple(
        replace(layout, times=layout_counts[layout])
        for layout in sorted(layout_counts, key=_layout_order)
    )


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
    raise AssertionError("a filling holds pieces that nobody ordered")


@dataclass(slots=True)
class _SawState:
    """The state of sawing one board; sizes include the kerf."""

    demand: model.Demand
    drops: dict[tuple[int, int, int, int], Drop]
    cuts: list[model.Cut] = field(default_factory=list)
    pieces: list[tuple[Drop, model.Rect]] = field(default_factory=list)
    offcuts: list[model.Rect] = field(default_factory=list)

    def to_rect(self, x: int, y: int, length: int, width: int) -> model.Rect:
        """Return the rectangle on the board, without the kerf."""
        usable, kerf = self.demand.board.usable, self.demand.kerf
        return model.Rect(usable.x + x, usable.y + y, length - kerf, width - kerf)


@dataclass(frozen=True, slots=True)
class _Panel:
    """A panel still to be cut; with ``drop``, its first cut is made and the piece is freed next."""

    x: int
    y: int
    length: int
    width: int
    stage: int
    runs: model.CutDirection | None
    drop: Drop | None = None

    @property
    def key(self) -> tuple[int, int, int, int]:
        return self.x, self.y, self.length, self.width


def _saw_board(
    demand: model.Demand, filling: Sequence[Drop]
) -> tuple[tuple[model.Cut, ...], tuple[tuple[Drop, model.Rect], ...], tuple[model.Rect, ...]]:
    usable, kerf = demand.board.usable, demand.kerf
    state = _SawState(demand, {drop[:4]: drop for drop in filling})
    stage = 1
    current = deque([_Panel(0, 0, usable.length + kerf, usable.width + kerf, 1, None)])
    later: deque[_Panel] = deque()
    while current or later:
        if not current:
            current, later, stage = later, current, stage + 1
        panel = current.popleft()
        drop = panel.drop or state.drops.get(panel.key)
        if drop is None:
            offcut = state.to_rect(*panel.key)
            if offcut.length > 0 < offcut.width:
                state.offcuts.append(offcut)
            continue
        rips = _rips(state, drop) != (panel.drop is not None)
        size, whole = (drop.across, panel.width) if rips else (drop.along, panel.length)
        turns = size != whole and panel.runs not in {None, "rip" if rips else "cross"}
        next_stage = panel.stage + turns
        if next_stage > stage:
            later.append(panel)
        else:
            current.extendleft(reversed(_cut_panel(state, panel, drop, next_stage, rips=rips)))
    return tuple(state.cuts), tuple(state.pieces), tuple(sorted(state.offcuts))


def _cut_panel(
    state: _SawState, panel: _Panel, drop: Drop, stage: int, *, rips: bool
) -> list[_Panel]:
    """Cut a panel once and return the panels left to cut, in order."""
    size, whole = (drop.across, panel.width) if rips else (drop.along, panel.length)
    first, rest = replace(panel, drop=drop), []
    if size != whole:  # else there is nothing to cut off
        runs: model.CutDirection = "rip" if rips else "cross"
        rect = state.to_rect(*panel.key)
        start = rect.y if rips else rect.x
        state.cuts.append(model.Cut(rect, runs, start + size - state.demand.kerf, stage))
        panel_cut = replace(panel, stage=stage, runs=runs, drop=None)
        if rips:
            first = replace(panel_cut, width=size, drop=drop)
            rest = [replace(panel_cut, y=panel.y + size, width=whole - size)]
        else:
            first = replace(panel_cut, length=size, drop=drop)
            rest = [replace(panel_cut, x=panel.x + size, length=whole - size)]
    if panel.drop is None:
        return [first, *rest]
    state.pieces.append((drop, state.to_rect(*first.key)))
    return rest


def _rips(state: _SawState, drop: Drop) -> bool:
    """Whether the rip cut comes first; if both rests are empty, the larger offcut decides."""
    above, beside = drop.width - drop.across, drop.length - drop.along
    rests = (
        (drop.x, drop.y + drop.across, drop.length if drop.rip_first else drop.along, above),
        (drop.x + drop.along, drop.y, beside, drop.across if drop.rip_first else drop.width),
    )
    if any(rest in state.drops for rest in rests):
        return drop.rip_first
    return drop.length * above >= drop.width * beside
