"""The layout of a lifecycle diagram: coordinates only, which ``svg`` draws.

The happy path runs down a column, one state a row. At most one other state stands on either side
as a tall rail; an edge to it is a straight lane with its label above the line. Any other edge
between two rows goes round the column as an arc. Moves that stay in their state are listed inside
its box. Room is reserved for every label before anything is placed: nothing has to be moved
afterwards, and no label overlaps a box or another label.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.drawing.shape import DrawingPlan, Edge, Translate, edges, plan_drawing
from kesin.lifecycle.drawing.text_metrics import EdgeLabel, StateText, edge_label, state_text
from kesin.lifecycle.vocabulary import GONE

Point = tuple[float, float]
Side = Literal[-1, 1]
SIDES: Final[tuple[Side, Side]] = (-1, 1)  # left and right, in the direction of the x axis

MARGIN: Final = 24.0
ENTRY_HEIGHT: Final = 46.0  # from the start dot to the first box
MIN_ROW_GAP: Final = 46.0  # between two rows
LABEL_PAD: Final = 11.0  # above and below a label between two rows
MIN_COLUMN_WIDTH: Final = 168.0
LABEL_GAP: Final = 10.0  # between a line and a label beside it
ARC_GAP: Final = 28.0  # between an arc and what it goes round
LANE_RUN: Final = 26.0  # the width a lane needs besides its label, for the arrow head and some line
LABEL_ABOVE_LINE: Final = 5.0  # between a label and its line
PORT_HALF: Final = 9.0  # half the height of an arc's end at a box
CORNER_MARGIN: Final = 14.0  # from a box's corner to the nearest end of a line
RAIL_PAD: Final = 26.0
MAX_PAGE_WIDTH: Final = 880.0
# The widths at which a lane's label wraps, tried in order.
LABEL_WIDTHS: Final = (260.0, 215.0, 190.0, 165.0, 140.0)
NARROW_LABEL_WIDTH: Final = 128.0


@dataclass(frozen=True, slots=True)
class StateBox:
    """The box of a state, and the text in it."""

    cell: StateText
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge with coordinates: its corners (drawn rounded), its label and the label's top left."""

    label: EdgeLabel
    points: tuple[Point, ...]
    x: float
    y: float

    @property
    def edge(self) -> Edge:
        return self.label.edge


@dataclass(frozen=True, slots=True)
class DiagramLayout:
    """A whole layout. Edges come in the order they are painted: lanes lie below arcs."""

    width: float
    height: float
    boxes: tuple[StateBox, ...]
    edges: tuple[DrawnEdge, ...]


@dataclass(slots=True)
class _Arc:
    """An edge between two rows that are no neighbours on the happy path."""

    label: EdgeLabel
    top: int
    bottom: int
    side: Side = -1
    out: float = 0.0  # distance from the column's edge
    gap: int = 0  # the row above its label
    label_out: float = 0.0

    @property
    def inner(self) -> range:
        """The rows that it passes."""
        return range(self.top + 1, self.bottom)

    @property
    def gaps(self) -> range:
        """The gaps that it passes, each numbered by the row above it."""
        return range(self.top, self.bottom)


@dataclass(slots=True)
class _Lane:
    """An edge between a row and a rail, or between two rails (``row`` is then the row above)."""

    label: EdgeLabel
    row: int
    side: Side
    y: float = 0.0


@dataclass(slots=True)
class _Port:
    """The end of a line at the side of a box, and the room it needs above and below."""

    line: _Arc | _Lane
    above: float
    below: float
    y: float = 0.0  # from the middle of the box


@dataclass(slots=True)
class _Sketch:
    """The state of the layout while it is computed."""

    plan: DrawingPlan
    cells: dict[str, StateText]
    half: float  # half the width of the column
    straight: dict[int, EdgeLabel] = field(default_factory=dict)
    arcs: list[_Arc] = field(default_factory=list)
    lanes: list[_Lane] = field(default_factory=list)
    across: list[_Lane] = field(default_factory=list)
    ports: dict[tuple[int, Side], list[_Port]] = field(default_factory=dict)
    middle: list[float] = field(default_factory=list)  # the centre of each row
    tall: list[float] = field(default_factory=list)  # the height of each row's box
    section: list[float] = field(default_factory=list)  # the centre of the labels in each gap
    bottom: float = 0.0

    def rail(self, side: Side) -> str | None:
        return self.plan.left if side < 0 else self.plan.right

    def clear_of_arcs(self, side: Side) -> float:
        """The distance from the column's edge at which the labels of lanes may begin."""
        held = {lane.row for lane in self.lanes if lane.side == side}
        crossed = {lane.row for lane in self.across}
        reach = (
            arc.out
            for arc in self.arcs
            if arc.side == side and (held & set(arc.inner) or crossed & set(arc.gaps))
        )
        return max(reach, default=0.0)


def lay_out(lifecycle: Lifecycle, translate: Translate = str) -> DiagramLayout:
    """Lay out a lifecycle; labels wrap sooner where it would be too wide for a page."""
    layouts = (_lay_out(lifecycle, label_width, translate) for label_width in LABEL_WIDTHS)
    fitting = next((layout for layout in layouts if layout.width <= MAX_PAGE_WIDTH), None)
    return fitting or _lay_out(lifecycle, LABEL_WIDTHS[-1], translate)


def _lay_out(lifecycle: Lifecycle, label_width: float, translate: Translate) -> DiagramLayout:
    sketch = _sort_edges(lifecycle, label_width, translate)
    _choose_sides(sketch)
    for side in SIDES:
        _run_arcs(sketch, side)
    _choose_gaps(sketch)
    _order_ports(sketch)
    _stack_rows(sketch)
    return _position(lifecycle, sketch)


def _sort_edges(lifecycle: Lifecycle, label_width: float, translate: Translate) -> _Sketch:
    plan = plan_drawing(lifecycle)
    cells = {
        state.name: state_text(lifecycle, state.name, translate=translate)
        for state in lifecycle.states
    }
    wide = max(MIN_COLUMN_WIDTH, *(cells[row].width for row in plan.rows))
    cells |= {row: state_text(lifecycle, row, wide, translate) for row in plan.rows}
    sketch = _Sketch(plan, cells, wide / 2)
    row = {name: index for index, name in enumerate(plan.rows)}
    for edge in edges(lifecycle):
        if GONE in edge.pair or edge.source == edge.to:
            continue
        source, to = row.get(edge.source), row.get(edge.to)
        if source is not None and to is not None:
            if to == source + 1:
                sketch.straight[source] = edge_label(edge, NARROW_LABEL_WIDTH)
            else:
                top, bottom = sorted((source, to))
                sketch.arcs.append(_Arc(edge_label(edge, NARROW_LABEL_WIDTH), top, bottom))
            continue
        label = edge_label(edge, label_width)
        if source is None and to is None:
            sketch.across.append(_Lane(label, 0, -1 if edge.source == plan.left else 1))
        else:
            at = source if source is not None else to
            sketch.lanes.append(_Lane(label, at or 0, -1 if plan.left in edge.pair else 1))
    return sketch


def _choose_sides(sketch: _Sketch) -> None:
    """Put each arc where it crosses fewer lanes; on a tie, up on the left and down on the right."""
    for arc in sketch.arcs:
        crossings = {
            side: sum(lane.side == side and lane.row in arc.inner for lane in sketch.lanes)
            for side in SIDES
        }
        downwards = sketch.plan.rows[arc.top] == arc.label.edge.source
        if crossings[-1] == crossings[1]:
            arc.side = 1 if downwards and sketch.rail(-1) else -1
        else:
            arc.side = -1 if crossings[-1] < crossings[1] else 1


def _run_arcs(sketch: _Sketch, side: Side) -> None:
    """Run short arcs inside long arcs, with each label on the side of its arc that costs less."""
    count = len(sketch.plan.rows)
    used = [LABEL_GAP - sketch.half] * count  # the width in use in each gap
    if side > 0:
        for gap, label in sketch.straight.items():
            used[gap] += label.width
    passed = [0.0] * count
    arcs = [arc for arc in sketch.arcs if arc.side == side]
    for arc in sorted(arcs, key=lambda arc: (arc.bottom - arc.top, arc.top)):
        touched = passed[arc.top : arc.bottom + 1]
        near = max(0.0, *(used[gap] for gap in arc.gaps), *touched) + ARC_GAP
        room = arc.label.width + 2 * LABEL_GAP
        choices = []
        for gap in arc.gaps:
            inside = max(near, used[gap] + room)
            off_centre = abs(2 * gap + 1 - arc.top - arc.bottom) / 100
            choices.append((inside + off_centre, gap, inside, inside - arc.label.width - LABEL_GAP))
            outside = near + arc.label.width / 3
            choices.append((outside + off_centre, gap, near, near + LABEL_GAP))
        _, arc.gap, arc.out, arc.label_out = min(choices)
        for gap in arc.gaps:
            used[gap] = arc.out
        used[arc.gap] = max(arc.out, arc.label_out + arc.label.width)
        for row in range(arc.top, arc.bottom + 1):
            passed[row] = arc.out


def _choose_gaps(sketch: _Sketch) -> None:
    """Put each lane between the rails in the gap with the fewest arcs, near the rows of both."""
    for lane in sketch.across:
        served = [{each.row for each in sketch.lanes if each.side == side} or {0} for side in SIDES]
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
    """Order the ports from the top, without crossings: arcs going up, lanes, arcs going down."""
    for row in range(len(sketch.plan.rows)):
        for side in SIDES:
            arcs = sorted((arc for arc in sketch.arcs if arc.side == side), key=lambda arc: arc.out)
            up = [_Port(arc, PORT_HALF, PORT_HALF) for arc in arcs if arc.bottom == row]
            down = [_Port(arc, PORT_HALF, PORT_HALF) for arc in reversed(arcs) if arc.top == row]
            level = [
                _Port(lane, lane.label.height + LABEL_ABOVE_LINE + 3, 8)
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
    y = MARGIN + ENTRY_HEIGHT
    for row, name in enumerate(sketch.plan.rows):
        ports = [port for side in SIDES for port in sketch.ports[row, side]]
        reach = max((abs(port.y) for port in ports), default=0)
        tall = max(sketch.cells[name].height, 2 * (reach + CORNER_MARGIN))
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
    """Stack the lanes between the rails, then the labels of the arrow down and of the arcs."""
    for lane in sketch.across:
        if lane.row == row:
            y += lane.label.height + LABEL_ABOVE_LINE + LABEL_PAD
            lane.y = y
    heights = [arc.label.height for arc in sketch.arcs if arc.gap == row]
    if row in sketch.straight:
        heights.append(sketch.straight[row].height)
    room = max(MIN_ROW_GAP, max(heights, default=0) + 2 * LABEL_PAD)
    sketch.section.append(y + room / 2)
    return y + room


def _position(lifecycle: Lifecycle, sketch: _Sketch) -> DiagramLayout:
    zones = {side: _zone_width(sketch, side) for side in SIDES}
    rails = {side: sketch.rail(side) for side in SIDES}
    wide = {side: sketch.cells[name].width if name else 0 for side, name in rails.items()}
    centre = MARGIN + wide[-1] + zones[-1] + sketch.half
    width = centre + sketch.half + zones[1] + wide[1] + MARGIN
    half, rows = sketch.half, zip(sketch.plan.rows, sketch.middle, sketch.tall, strict=True)
    boxes = [
        StateBox(sketch.cells[name], centre - half, middle - tall / 2, 2 * half, tall)
        for name, middle, tall in rows
    ]
    edge_of = {side: centre + side * (half + zones[side]) for side in SIDES}
    for side, name in rails.items():
        if name:
            left = min(edge_of[side], edge_of[side] + side * wide[side])
            boxes.append(_rail(sketch, side, name, left))
    drawn = [
        *_draw_lanes(sketch, centre, edge_of),
        *_draw_arcs(sketch, centre),
        *_draw_straight(sketch, centre, boxes),
        *_draw_entries(lifecycle, centre, (boxes[0], *boxes[len(sketch.plan.rows) :])),
    ]
    bottom = max(sketch.bottom, *(box.y + box.height for box in boxes))
    return DiagramLayout(width, bottom + MARGIN, tuple(boxes), tuple(drawn))


def _draw_entries(
    lifecycle: Lifecycle, centre: float, boxes: Iterable[StateBox]
) -> Iterable[DrawnEdge]:
    """The ways in, from above: to the first row, and to a state beside the rows."""
    entered = {edge.to: edge for edge in edges(lifecycle) if edge.source == GONE}
    for box in boxes:
        if box.cell.name not in entered:
            continue
        label, x = edge_label(entered[box.cell.name], NARROW_LABEL_WIDTH), box.x + box.width / 2
        middle = (MARGIN + 6 + box.y - label.height) / 2
        beside = x + LABEL_GAP if x <= centre else x - LABEL_GAP - label.width
        yield DrawnEdge(label, ((x, MARGIN + 6), (x, box.y)), beside, middle)


def _zone_width(sketch: _Sketch, side: Side) -> float:
    """The width between the column and the rail of that side, or the edge of the picture."""
    arcs = [arc for arc in sketch.arcs if arc.side == side]
    reach = max((max(arc.out, arc.label_out + arc.label.width) for arc in arcs), default=0.0)
    labels = [label.width - sketch.half for label in sketch.straight.values() if side > 0]
    reach = max(reach, *labels, 0.0)
    if not sketch.rail(side):
        return reach
    lanes = [lane for lane in (*sketch.lanes, *sketch.across) if lane.side == side]
    run = sketch.clear_of_arcs(side) + LANE_RUN
    return max(reach + LABEL_GAP, *(run + lane.label.width for lane in lanes), 4 * ARC_GAP)


def _rail(sketch: _Sketch, side: Side, name: str, x: float) -> StateBox:
    """The box of a rail, as tall as the rows it has lanes to."""
    served = {lane.row for lane in sketch.lanes if lane.side == side}
    reach = [(sketch.middle[row], sketch.tall[row] / 2) for row in sorted(served)]
    reach += [(lane.y, RAIL_PAD) for lane in sketch.across]
    text = sketch.cells[name]
    top = min((y - half for y, half in reach), default=sketch.middle[0])
    bottom = max((y + half for y, half in reach), default=sketch.middle[0])
    tall = max(text.height, bottom - top)
    return StateBox(text, x, (top + bottom - tall) / 2, text.width, tall)


def _draw_lanes(sketch: _Sketch, centre: float, edge_of: dict[Side, float]) -> Iterable[DrawnEdge]:
    for lane in (*sketch.lanes, *sketch.across):
        near = centre + lane.side * sketch.half
        ends = [(near, lane.y), (edge_of[lane.side], lane.y)]
        if lane in sketch.across:
            ends = [(edge_of[-1], lane.y), (edge_of[1], lane.y)]
        edge = lane.label.edge
        ends.sort(reverse=edge.source == sketch.rail(1) or edge.to == sketch.rail(-1))
        free = near + lane.side * sketch.clear_of_arcs(lane.side)
        x = (free + edge_of[lane.side] - lane.label.width) / 2
        y = lane.y - LABEL_ABOVE_LINE - lane.label.height
        yield DrawnEdge(lane.label, tuple(ends), x, y)


def _draw_arcs(sketch: _Sketch, centre: float) -> Iterable[DrawnEdge]:
    port = {
        (id(port.line), row): sketch.middle[row] + port.y
        for (row, _), ports in sketch.ports.items()
        for port in ports
    }
    for arc in sorted(sketch.arcs, key=lambda arc: -arc.out):
        near = centre + arc.side * sketch.half
        far = near + arc.side * arc.out
        ends = [(near, port[id(arc), arc.top]), (near, port[id(arc), arc.bottom])]
        if sketch.plan.rows[arc.top] != arc.label.edge.source:
            ends.reverse()
        x = near + arc.side * arc.label_out
        if arc.side < 0:
            x -= arc.label.width
        points = (ends[0], (far, ends[0][1]), (far, ends[1][1]), ends[1])
        yield DrawnEdge(arc.label, points, x, sketch.section[arc.gap] - arc.label.height / 2)


def _draw_straight(sketch: _Sketch, centre: float, boxes: list[StateBox]) -> Iterable[DrawnEdge]:
    for row, label in sketch.straight.items():
        ends = ((centre, boxes[row].y + boxes[row].height), (centre, boxes[row + 1].y))
        yield DrawnEdge(label, ends, centre + LABEL_GAP, sketch.section[row] - label.height / 2)
