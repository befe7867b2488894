"""From pieces in corners to cuts in order: what the saw does, and what every cut leaves.

Cuts come stage by stage, as a panel saw works: first all that run one way through the board, then
each strip by itself, then what has to be turned once more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kesin.workloads.optiplan.optimizer.model import (
    Cut,
    Demand,
    Hundredths,
    Layout,
    Placement,
    Rect,
    Runs,
)
from kesin.workloads.optiplan.optimizer.problem import Drop, Fillings


def layouts(
    demand: Demand, members: Sequence[Sequence[int]], fillings: Fillings
) -> tuple[Layout, ...]:
    """The boards with their cuts, equal boards told once; ``members`` as ``task_of`` gives them."""
    stock = [Counter(parts) for parts in members]
    alike = Counter(tuple(sorted(filling)) for filling in fillings)
    found: Counter[Layout] = Counter()
    for filling, boards in alike.items():
        cuts, pieces, offcuts = _saw(demand, filling)
        left = boards
        while left:
            times, parts = _named(stock, pieces, left)
            placements = tuple(
                Placement(part, rect, drop.turned)
                for part, (drop, rect) in zip(parts, pieces, strict=True)
            )
            layout = Layout(1, tuple(sorted(placements, key=_place)), offcuts, cuts)
            found[layout] += times
            left -= times
    ordered = sorted(found, key=lambda one: (-_taken(one), one.placements[0].part, _key(one)))
    return tuple(Layout(found[one], one.placements, one.offcuts, one.cuts) for one in ordered)


def _place(placement: Placement) -> tuple[Hundredths, Hundredths]:
    return placement.rect.y, placement.rect.x


def _key(layout: Layout) -> list[tuple[Rect, int]]:
    return [(placement.rect, placement.part) for placement in layout.placements]


def _taken(layout: Layout) -> int:
    return sum(placement.rect.area for placement in layout.placements)


def _named(
    stock: list[Counter[int]], pieces: Sequence[tuple[Drop, Rect]], most: int
) -> tuple[int, list[int]]:
    """Which part each piece is, on as many equal boards as possible; taken out of the stock."""
    for times in range(most, 0, -1):
        trial = {drop.kind: stock[drop.kind].copy() for drop, _ in pieces}
        parts: list[int] = []
        for drop, _ in pieces:
            left = trial[drop.kind]
            part = next((number for number in sorted(left) if left[number] >= times), None)
            if part is None:
                break
            left[part] -= times
            parts.append(part)
        else:
            for kind, left in trial.items():
                stock[kind] = left
            return times, parts
    raise AssertionError("a filling holds pieces that nobody ordered")


@dataclass(slots=True)
class _Bench:
    """What lies on the saw; sizes still have the kerf in them."""

    demand: Demand
    drops: dict[tuple[int, int, int, int], Drop]
    cuts: list[Cut] = field(default_factory=list)
    pieces: list[tuple[Drop, Rect]] = field(default_factory=list)
    offcuts: list[Rect] = field(default_factory=list)

    def real(self, x: int, y: int, length: int, width: int) -> Rect:
        """A place on the board without the kerf behind it."""
        usable, kerf = self.demand.board.usable, self.demand.kerf
        return Rect(usable.x + x, usable.y + y, length - kerf, width - kerf)


@dataclass(frozen=True, slots=True)
class _Panel:
    """A panel on its way: to be looked up, or (``drop``) freed of what is beside its piece."""

    x: int
    y: int
    length: int
    width: int
    stage: int
    runs: Runs | None
    drop: Drop | None = None

    @property
    def place(self) -> tuple[int, int, int, int]:
        return self.x, self.y, self.length, self.width


def _saw(
    demand: Demand, filling: Sequence[Drop]
) -> tuple[tuple[Cut, ...], tuple[tuple[Drop, Rect], ...], tuple[Rect, ...]]:
    usable, kerf = demand.board.usable, demand.kerf
    drops = {drop[:4]: drop for drop in filling}
    bench = _Bench(demand, drops)
    whole = _Panel(0, 0, usable.length + kerf, usable.width + kerf, 1, None)
    stage = 1
    now: deque[_Panel] = deque([whole])
    later: deque[_Panel] = deque()
    while now or later:
        if not now:
            now, later, stage = later, now, stage + 1
        panel = now.popleft()
        if _stage(bench, panel) > stage:
            later.append(panel)
        else:
            now.extendleft(reversed(_part(bench, panel)))
    return tuple(bench.cuts), tuple(bench.pieces), tuple(sorted(bench.offcuts))


def _stage(bench: _Bench, panel: _Panel) -> int:
    """The stage in which a panel is cut next."""
    drop = panel.drop or bench.drops.get(panel.place)
    if drop is None:
        return panel.stage
    rips = _rips(bench, drop) != (panel.drop is not None)
    whole, size = (panel.width, drop.across) if rips else (panel.length, drop.along)
    runs: Runs = "rip" if rips else "cross"
    return panel.stage + (size != whole and panel.runs not in {None, runs})


def _part(bench: _Bench, panel: _Panel) -> list[_Panel]:
    """Cut a panel once, or put it aside; the panels to go on with, in their order."""
    drop = panel.drop or bench.drops.get(panel.place)
    if drop is None:
        offcut = bench.real(*panel.place)
        if offcut.length > 0 < offcut.width:
            bench.offcuts.append(offcut)
        return []
    freed = panel.drop is not None
    rips = _rips(bench, drop) != freed
    size, whole = (drop.across, panel.width) if rips else (drop.along, panel.length)
    runs: Runs = "rip" if rips else "cross"
    if size == whole:  # nothing to cut off
        stage, keeps = panel.stage, panel.runs
    else:
        stage, keeps = _stage(bench, panel), runs
        rect = bench.real(*panel.place)
        start = rect.y if rips else rect.x
        bench.cuts.append(Cut(rect, runs, start + size - bench.demand.kerf, stage))
    if rips:
        first = _Panel(panel.x, panel.y, panel.length, size, stage, keeps, drop)
        rest = _Panel(panel.x, panel.y + size, panel.length, whole - size, stage, keeps)
    else:
        first = _Panel(panel.x, panel.y, size, panel.width, stage, keeps, drop)
        rest = _Panel(panel.x + size, panel.y, whole - size, panel.width, stage, keeps)
    ongoing = [] if size == whole else [rest]
    if not freed:
        return [first, *ongoing]
    real = bench.real(*first.place)
    bench.pieces.append((drop, real))
    return ongoing


def _rips(bench: _Bench, drop: Drop) -> bool:
    """Which cut comes first; where both rests are empty, the one that leaves the larger offcut."""
    over, beside = drop.width - drop.across, drop.length - drop.along
    rests = (
        (drop.x, drop.y + drop.across, drop.length if drop.rip_first else drop.along, over),
        (drop.x + drop.along, drop.y, beside, drop.across if drop.rip_first else drop.width),
    )
    if any(rest in bench.drops for rest in rests):
        return drop.rip_first
    return drop.length * over >= drop.width * beside
