"""Where everything stands in the picture of a lifecycle. Numbers only; ``svg`` puts ink on them.

The happy way runs down a column, one state a row. At most one other state stands on either side
as a tall rail, so whatever leads to it is a straight lane with its names above the line. All else
between two rows goes round the column as an arc. Moves that stay in their state are listed inside
its box. Room is reserved for every label before anything is placed: nothing has to be moved
afterwards, and no label can meet a box or another label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.drawing.shape import Edge, Plan, edges, plan
from kesin.lifecycle.drawing.text_metrics import Cell, Label, Say, cell, label
from kesin.lifecycle.vocabulary import GONE

Side = Literal[-1, 1]
SIDES: Final[tuple[Side, Side]] = (-1, 1)  # left and right, as the x axis has it

MARGIN: Final = 24.0
ENTRY: Final = 46.0  # from the dot to the first box
GAP: Final = 46.0  # least room between two rows
PAD: Final = 11.0  # above and below a label between two rows
BOX: Final = 168.0  # least width of the column
NEAR: Final = 10.0  # between a line and a label beside it
STEP: Final = 28.0  # between an arc and what it goes round
LANE_RUN: Final = 26.0  # what a lane needs besides its label: the arrow head and some line
UNDER: Final = 5.0  # between a label and its line
PORT: Final = 9.0  # half the room of an arc's end at a box
CORNER: Final = 14.0  # no line ends nearer to a box's corner
RAIL_PAD: Final = 26.0
COMFORTABLE: Final = 880.0  # a page's width
LABEL_WIDTHS: Final = (260.0, 215.0, 190.0, 165.0, 140.0)  # where a lane's label wraps
NARROW_LABEL: Final = 128.0


@dataclass(frozen=True, slots=True)
class Box:
    """A state's box, and what is written in it."""

    cell: Cell
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Wire:
    """A drawn edge: its corners (rounded when drawn), and the label with its top left corner."""

    edge: Edge
    points: tuple[tuple[float, float], ...]
    label: Label
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Picture:
    """A whole layout. Wires come in the order they are painted: lanes lie below arcs."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]


@dataclass(slots=True)
class _Arc:
    """An edge between two rows that are not happy neighbours."""

    edge: Edge
    top: int
    bottom: int
    label: Label
    side: Side = -1
    out: float = 0.0  # how far from the column's edge it runs
    gap: int = 0  # below which row its label stands
    label_out: float = 0.0

    @property
    def inner(self) -> range:
        """The rows it passes."""
        return range(self.top + 1, self.bottom)

    @property
    def gaps(self) -> range:
        """The gaps it passes, each named by the row above it."""
        return range(self.top, self.bottom)


@dataclass(slots=True)
class _Lane:
    """An edge between a row and a rail, or (``row`` is then the row above it) between two rails."""

    edge: Edge
    row: int
    side: Side
    label: Label
    y: float = 0.0


@dataclass(slots=True)
class _Port:
    """The end of a line at a box's side, and the room it wants above and below."""

    line: _Arc | _Lane
    above: float
    below: float
    y: float = 0.0  # from the middle of the box


@dataclass(slots=True)
class _Sketch:
    """What is known so far while laying out."""

    plan: Plan
    cells: dict[str, Cell]
    half: float  # of the column's width
    straight: dict[int, tuple[Edge, Label]] = field(default_factory=dict)
    arcs: list[_Arc] = field(default_factory=list)
    lanes: list[_Lane] = field(default_factory=list)
    across: list[_Lane] = field(default_factory=list)
    ports: dict[tuple[int, Side], list[_Port]] = field(default_factory=dict)
    middle: list[float] = field(default_factory=list)  # of each row
    tall: list[float] = field(default_factory=list)  # each row's box
    section: list[float] = field(default_factory=list)  # the middle of each gap's labels
    bottom: float = 0.0

    def rail(self, side: Side) -> str | None:
        return self.plan.left if side < 0 else self.plan.right

    def clear_of_arcs(self, side: Side) -> float:
        """From the column's edge to where lanes may carry their labels."""
        held = {lane.row for lane in self.lanes if lane.side == side}
        crossed = {lane.row for lane in self.across}
        reach = (
            arc.out
            for arc in self.arcs
            if arc.side == side and (held & set(arc.inner) or crossed & set(arc.gaps))
        )
        return max(reach, default=0.0)


def lay_out(lifecycle: Lifecycle, say: Say = str) -> Picture:
    """The picture of a lifecycle; labels wrap sooner where it would be too wide for a page."""
    tries = (_lay_out(lifecycle, widest, say) for widest in LABEL_WIDTHS)
    fitting = next((picture for picture in tries if picture.width <= COMFORTABLE), None)
    return fitting or _lay_out(lifecycle, LABEL_WIDTHS[-1], say)


def _lay_out(lifecycle: Lifecycle, widest: float, say: Say) -> Picture:
    sketch = _sort_edges(lifecycle, widest, say)
    _choose_sides(sketch)
    for side in SIDES:
        _run_arcs(sketch, side)
    _choose_gaps(sketch)
    _order_ports(sketch)
    _stack_rows(sketch)
    return _place(lifecycle, sketch)


def _sort_edges(lifecycle: Lifecycle, widest: float, say: Say) -> _Sketch:
    layout = plan(lifecycle)
    cells = {state.name: cell(lifecycle, state.name, say=say) for state in lifecycle.states}
    wide = max(BOX, *(cells[row].width for row in layout.rows))
    cells |= {row: cell(lifecycle, row, wide, say) for row in layout.rows}
    half = wide / 2
    sketch = _Sketch(layout, cells, half)
    row = {name: index for index, name in enumerate(layout.rows)}
    for edge in edges(lifecycle):
        if GONE in edge.pair or edge.source == edge.to:
            continue
        source, to = row.get(edge.source), row.get(edge.to)
        if source is not None and to is not None:
            if to == source + 1:
                sketch.straight[source] = (edge, label(edge, NARROW_LABEL))
            else:
                top, bottom = sorted((source, to))
                sketch.arcs.append(_Arc(edge, top, bottom, label(edge, NARROW_LABEL)))
            continue
        text = label(edge, widest)
        if source is None and to is None:
            side: Side = -1 if edge.source == layout.left else 1
            sketch.across.append(_Lane(edge, 0, side, text))
        else:
            side = -1 if layout.left in edge.pair else 1
            at = source if source is not None else to
            sketch.lanes.append(_Lane(edge, at or 0, side, text))
    return sketch


def _choose_sides(sketch: _Sketch) -> None:
    """An arc goes where it crosses fewer lanes; otherwise up on the left, and down on the right."""
    for arc in sketch.arcs:
        crossings = {
            side: sum(lane.side == side and lane.row in arc.inner for lane in sketch.lanes)
            for side in SIDES
        }
        downwards = sketch.plan.rows[arc.top] == arc.edge.source
        if crossings[-1] == crossings[1]:
            arc.side = 1 if downwards and sketch.rail(-1) else -1
        else:
            arc.side = -1 if crossings[-1] < crossings[1] else 1


def _run_arcs(sketch: _Sketch, side: Side) -> None:
    """Short arcs run inside long ones; a label stands on whichever side of its arc costs less."""
    count = len(sketch.plan.rows)
    used = [NEAR - sketch.half] * count  # how far out each gap is taken
    if side > 0:
        for gap, (_, text) in sketch.straight.items():
            used[gap] += text.width
    passed = [0.0] * count
    arcs = [arc for arc in sketch.arcs if arc.side == side]
    for arc in sorted(arcs, key=lambda arc: (arc.bottom - arc.top, arc.top)):
        near = max(0.0, *(used[gap] for gap in arc.gaps), *(passed[row] for row in arc.inner), 0.0)
        near = max(near, passed[arc.top], passed[arc.bottom]) + STEP
        room = arc.label.width + 2 * NEAR
        choices = []
        for gap in arc.gaps:
            inside = max(near, used[gap] + room)
            off_centre = abs(2 * gap + 1 - arc.top - arc.bottom) / 100
            choices.append((inside + off_centre, gap, inside, inside - arc.label.width - NEAR))
            outside = near + arc.label.width / 3
            choices.append((outside + off_centre, gap, near, near + NEAR))
        _, arc.gap, arc.out, arc.label_out = min(choices)
        for gap in arc.gaps:
            used[gap] = arc.out
        used[arc.gap] = max(arc.out, arc.label_out + arc.label.width)
        for row in range(arc.top, arc.bottom + 1):
            passed[row] = arc.out


def _choose_gaps(sketch: _Sketch) -> None:
    """A lane between the rails takes the gap that fewest arcs pass, near the rows both serve."""
    for lane in sketch.across:
        served = [
            {other.row for other in sketch.lanes if other.side == side} or {0} for side in SIDES
        ]
        top = max(min(rows) for rows in served)
        bottom = max(top, min(max(rows) for rows in served))
        last = max(0, len(sketch.plan.rows) - 2)
        gaps = range(min(top, last), min(bottom, last) + 1)
        lane.row = min(
            gaps,
            key=lambda gap: (
                sum(gap in arc.gaps for arc in sketch.arcs),
                abs(2 * gap + 1 - top - bottom),
            ),
        )


def _order_ports(sketch: _Sketch) -> None:
    """From the top: arcs going up, lanes, arcs going down, each so that none crosses another."""
    for row in range(len(sketch.plan.rows)):
        for side in SIDES:
            arcs = sorted((arc for arc in sketch.arcs if arc.side == side), key=lambda arc: arc.out)
            up = [_Port(arc, PORT, PORT) for arc in arcs if arc.bottom == row]
            down = [_Port(arc, PORT, PORT) for arc in reversed(arcs) if arc.top == row]
            level = [
                _Port(lane, lane.label.height + UNDER + 3, 8)
                for lane in sketch.lanes
                if (lane.row, lane.side) == (row, side)
            ]
            ports = [*up, *level, *down]
            for before, port in pairwise(ports):
                port.y = before.y + before.below + port.above
            shift = (ports[0].y + ports[-1].y) / 2 if ports else 0
            for port in ports:
                port.y -= shift
            sketch.ports[row, side] = ports


def _stack_rows(sketch: _Sketch) -> None:
    y = MARGIN + ENTRY
    for row, name in enumerate(sketch.plan.rows):
        ports = [port for side in SIDES for port in sketch.ports[row, side]]
        reach = max((abs(port.y) for port in ports), default=0)
        tall = max(sketch.cells[name].height, 2 * (reach + CORNER))
        above = max([tall / 2, *(port.above - port.y for port in ports)])
        below = max([tall / 2, *(port.y + port.below for port in ports)])
        sketch.middle.append(y + above)
        sketch.tall.append(tall)
        for port in ports:
            if isinstance(port.line, _Lane):
                port.line.y = y + above + port.y
        y += above + below
        if row + 1 < len(sketch.plan.rows):
            y = _stack_gap(sketch, row, y)
    sketch.bottom = y


def _stack_gap(sketch: _Sketch, row: int, y: float) -> float:
    """Lanes between the rails first, then the labels of the arrow down and of the arcs."""
    for lane in sketch.across:
        if lane.row == row:
            y += lane.label.height + UNDER + PAD
            lane.y = y
    heights = [arc.label.height for arc in sketch.arcs if arc.gap == row]
    if row in sketch.straight:
        heights.append(sketch.straight[row][1].height)
    room = max(GAP, max(heights, default=0) + 2 * PAD)
    sketch.section.append(y + room / 2)
    return y + room


def _place(lifecycle: Lifecycle, sketch: _Sketch) -> Picture:
    zones = {side: _zone(sketch, side) for side in SIDES}
    rails = {side: sketch.rail(side) for side in SIDES}
    wide = {side: sketch.cells[name].width if name else 0 for side, name in rails.items()}
    centre = MARGIN + wide[-1] + zones[-1] + sketch.half
    width = centre + sketch.half + zones[1] + wide[1] + MARGIN
    boxes = [
        Box(
            sketch.cells[name],
            centre - sketch.half,
            sketch.middle[row] - sketch.tall[row] / 2,
            2 * sketch.half,
            sketch.tall[row],
        )
        for row, name in enumerate(sketch.plan.rows)
    ]
    edge_of = {side: centre + side * (sketch.half + zones[side]) for side in SIDES}
    for side, name in rails.items():
        if name:
            boxes.append(
                _rail(sketch, side, name, min(edge_of[side], edge_of[side] + side * wide[side]))
            )
    wires = [
        *_lane_wires(sketch, centre, edge_of),
        *_arc_wires(sketch, centre),
        *_straight_wires(sketch, centre, boxes),
    ]
    birth = next(edge for edge in edges(lifecycle) if edge.source == GONE)
    text = label(birth, NARROW_LABEL)
    entry = ((centre, MARGIN + 6), (centre, boxes[0].y))
    middle = (MARGIN + 6 + boxes[0].y - text.height) / 2
    wires.append(Wire(birth, entry, text, centre + NEAR, middle))
    bottom = max(sketch.bottom, *(box.y + box.height for box in boxes))
    return Picture(width, bottom + MARGIN, tuple(boxes), tuple(wires))


def _zone(sketch: _Sketch, side: Side) -> float:
    """The width between the column and the rail of that side, or the picture's edge."""
    arcs = [arc for arc in sketch.arcs if arc.side == side]
    reach = max((max(arc.out, arc.label_out + arc.label.width) for arc in arcs), default=0.0)
    labels = [text.width - sketch.half for _, text in sketch.straight.values() if side > 0]
    reach = max(reach, *labels, 0.0)
    if not sketch.rail(side):
        return reach
    lanes = [lane for lane in (*sketch.lanes, *sketch.across) if lane.side == side]
    free = sketch.clear_of_arcs(side)
    return max(reach + NEAR, *(free + lane.label.width + LANE_RUN for lane in lanes), 4 * STEP)


def _rail(sketch: _Sketch, side: Side, name: str, x: float) -> Box:
    """A side state is as tall as the rows it has lanes to."""
    served = {lane.row for lane in sketch.lanes if lane.side == side}
    reach = [(sketch.middle[row], sketch.tall[row] / 2) for row in sorted(served)]
    reach += [(lane.y, RAIL_PAD) for lane in sketch.across]
    text = sketch.cells[name]
    top = min((y - half for y, half in reach), default=sketch.middle[0])
    bottom = max((y + half for y, half in reach), default=sketch.middle[0])
    tall = max(text.height, bottom - top)
    return Box(text, x, (top + bottom - tall) / 2, text.width, tall)


def _lane_wires(sketch: _Sketch, centre: float, edge_of: dict[Side, float]) -> Iterable[Wire]:
    for lane in (*sketch.lanes, *sketch.across):
        near = centre + lane.side * sketch.half
        ends = [(near, lane.y), (edge_of[lane.side], lane.y)]
        if lane in sketch.across:
            ends = [(edge_of[-1], lane.y), (edge_of[1], lane.y)]
        if lane.edge.source == sketch.rail(1) or lane.edge.to == sketch.rail(-1):
            ends.sort(reverse=True)
        else:
            ends.sort()
        free = near + lane.side * sketch.clear_of_arcs(lane.side)
        x = (free + edge_of[lane.side] - lane.label.width) / 2
        yield Wire(lane.edge, tuple(ends), lane.label, x, lane.y - UNDER - lane.label.height)


def _arc_wires(sketch: _Sketch, centre: float) -> Iterable[Wire]:
    port = {
        (id(port.line), row): sketch.middle[row] + port.y
        for (row, _), ports in sketch.ports.items()
        for port in ports
    }
    for arc in sorted(sketch.arcs, key=lambda arc: -arc.out):
        near = centre + arc.side * sketch.half
        far = near + arc.side * arc.out
        ends = [(near, port[id(arc), arc.top]), (near, port[id(arc), arc.bottom])]
        if sketch.plan.rows[arc.top] != arc.edge.source:
            ends.reverse()
        x = near + arc.side * arc.label_out
        if arc.side < 0:
            x -= arc.label.width
        points = (ends[0], (far, ends[0][1]), (far, ends[1][1]), ends[1])
        yield Wire(arc.edge, points, arc.label, x, sketch.section[arc.gap] - arc.label.height / 2)


def _straight_wires(sketch: _Sketch, centre: float, boxes: list[Box]) -> Iterable[Wire]:
    for row, (edge, text) in sketch.straight.items():
        ends = ((centre, boxes[row].y + boxes[row].height), (centre, boxes[row + 1].y))
        y = sketch.section[row] - text.height / 2
        yield Wire(edge, ends, text, centre + NEAR, y)
