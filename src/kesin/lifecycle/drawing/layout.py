"""The layout of a lifecycle diagram: coordinates only, which ``svg`` draws.

The happy path runs down a column, one state a row. At most one other state stands on either side
as a tall rail; an edge to it is a straight lane. Any other edge between two rows goes round the
column as an arc. Lanes and arcs leave the side of a box, with their label above the line. Moves
that stay in their state are listed inside its box. Room is reserved for every label before anything
is placed: nothing has to be moved afterwards, and no label overlaps a box or another label.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
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
END_ROOM: Final = 9.0  # above and below the end of a line at a box
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
class _Line:
    """A line beside a row, with a label above: a lane to, from or between rails, or an arc."""

    label: EdgeLabel
    row: int
    side: Side = -1
    to: int | None = None  # the other row of an arc
    out: float = 0.0  # of an arc: its distance from the column's edge
    clear: float = 0.0  # of arcs that the line crosses: its label begins beyond
    y: dict[int, float] = field(default_factory=dict)  # at each of its rows

    @property
    def rows(self) -> range:
        top, bottom = sorted((self.row, self.row if self.to is None else self.to))
        return range(top, bottom + 1)

    def room_above(self, row: int) -> float:
        """What it needs above its end at this row."""
        label = self.label.height + LABEL_ABOVE_LINE + 3
        return label if row == self.row else END_ROOM


@dataclass(slots=True)
class _Sketch:
    """The state of the layout while it is computed."""

    plan: DrawingPlan
    cells: dict[str, StateText]
    half: float  # half the width of the column
    straight: dict[int, EdgeLabel] = field(default_factory=dict)
    arcs: list[_Line] = field(default_factory=list)
    lanes: list[_Line] = field(default_factory=list)
    across: list[_Line] = field(default_factory=list)
    middle: list[float] = field(default_factory=list)  # the centre of each row
    tall: list[float] = field(default_factory=list)  # the height of each row's box
    section: list[float] = field(default_factory=list)  # the centre of the labels in each gap
    bottom: float = 0.0

    def rail(self, side: Side) -> str | None:
        return self.plan.left if side < 0 else self.plan.right

    def lines_at(self, row: int, side: Side) -> list[_Line]:
        """The lines at a box from the top, without crossings: arcs up, lanes, arcs down."""
        arcs = sorted((arc for arc in self.arcs if arc.side == side), key=lambda arc: arc.out)
        up = (arc for arc in arcs if arc.rows[-1] == row)
        down = (arc for arc in reversed(arcs) if arc.rows[0] == row)
        return [*up, *(lane for lane in self.lanes if (lane.row, lane.side) == (row, side)), *down]


def lay_out(lifecycle: Lifecycle, translate: Translate = str) -> DiagramLayout:
    """Lay out a lifecycle; labels wrap sooner where it would be too wide for a page."""
    layouts = (_lay_out(lifecycle, label_width, translate) for label_width in LABEL_WIDTHS)
    fitting = next((layout for layout in layouts if layout.width <= MAX_PAGE_WIDTH), None)
    return fitting or _lay_out(lifecycle, LABEL_WIDTHS[-1], translate)


def _lay_out(lifecycle: Lifecycle, label_width: float, translate: Translate) -> DiagramLayout:
    sketch = _sort_edges(lifecycle, label_width, translate)
    _choose_gaps(sketch)
    for side in SIDES:
        _run_arcs(sketch, side)
    _stack_rows(sketch)
    return _position(lifecycle, sketch)


def _sort_edges(lifecycle: Lifecycle, label_width: float, translate: Translate) -> _Sketch:
    plan = plan_drawing(lifecycle)
    cells = {state.name: state_text(lifecycle, state.name, translate=translate) for state in lifecycle.states}
    wide = max(MIN_COLUMN_WIDTH, *(cells[row].width for row in plan.rows))
    cells |= {row: state_text(lifecycle, row, wide, translate) for row in plan.rows}
    sketch = _Sketch(plan, cells, wide / 2)
    row = {name: index for index, name in enumerate(plan.rows)}
    for edge in edges(lifecycle):
        if GONE in edge.pair or edge.source == edge.to:
            continue
        source, to = row.get(edge.source), row.get(edge.to)
        if source is None or to is None:
            across, left = source is None and to is None, plan.left == edge.source
            side: Side = -1 if left or (not across and plan.left == edge.to) else 1
            lane = _Line(edge_label(edge, label_width), source or to or 0, side)
            (sketch.across if across else sketch.lanes).append(lane)
        elif to == source + 1:
            sketch.straight[source] = edge_label(edge, NARROW_LABEL_WIDTH)
        else:
            down: Side = 1 if plan.left else -1  # and up on the left: they seldom meet
            label = edge_label(edge, NARROW_LABEL_WIDTH)
            sketch.arcs.append(_Line(label, source, down if to > source else -1, to))
    return sketch


def _run_arcs(sketch: _Sketch, side: Side) -> None:
    """Run short arcs inside long arcs, each with room for its label; lanes begin beyond them."""
    run: list[_Line] = []

    def clear(rows: Callable[[_Line], range], row: int) -> float:
        return max((arc.out for arc in run if row in rows(arc)), default=0.0)

    labels = sketch.straight.values() if side > 0 else ()
    used = max((label.width + LABEL_GAP - sketch.half for label in labels), default=0.0)
    arcs = [arc for arc in sketch.arcs if arc.side == side]
    for arc in sorted(arcs, key=lambda arc: (len(arc.rows), arc.rows[0])):
        inside = (other.out for other in run if set(other.rows) & set(arc.rows))
        arc.clear = clear(lambda arc: arc.rows[1:-1], arc.row)
        label_end = arc.clear + arc.label.width + 2 * LABEL_GAP
        arc.out = max(label_end, max((0.0, used, *inside)) + ARC_GAP)
        run.append(arc)
    lanes = [lane for lane in sketch.lanes if lane.side == side]
    reach = [clear(lambda arc: arc.rows[1:-1], lane.row) for lane in lanes]
    reach += [clear(lambda arc: arc.rows[:-1], lane.row) for lane in sketch.across]
    for lane in (*lanes, *(lane for lane in sketch.across if lane.side == side)):
        lane.clear = max(reach)


def _choose_gaps(sketch: _Sketch) -> None:
    """Put each lane between the rails below the last row that both have lanes to."""
    for lane in sketch.across:
        served = ([each.row for each in sketch.lanes if each.side == side] for side in SIDES)
        last = max(0, len(sketch.plan.rows) - 2)
        lane.row = min(last, *(max(rows, default=0) for rows in served))


def _stack_rows(sketch: _Sketch) -> None:
    y = MARGIN + ENTRY_HEIGHT
    for row, name in enumerate(sketch.plan.rows):
        ends: list[tuple[_Line, float]] = []  # with their distance from the middle of the box
        for side in SIDES:
            lines = sketch.lines_at(row, side)
            levels = list(accumulate(END_ROOM + line.room_above(row) for line in lines))
            middle = (levels[0] + levels[-1]) / 2 if levels else 0
            ends += [(line, at - middle) for line, at in zip(lines, levels, strict=True)]
        reach = max((abs(at) for _, at in ends), default=0)
        tall = max(sketch.cells[name].height, 2 * (reach + CORNER_MARGIN))
        above = max([tall / 2, *(line.room_above(row) - at for line, at in ends)])
        below = max([tall / 2, *(at + END_ROOM for _, at in ends)])
        sketch.middle.append(y + above)
        sketch.tall.append(tall)
        for line, at in ends:
            line.y[row] = y + above + at
        y += above + below
        if row + 1 == len(sketch.plan.rows):
            break
        for lane in (lane for lane in sketch.across if lane.row == row):
            y += lane.label.height + LABEL_ABOVE_LINE + LABEL_PAD
            lane.y[row] = y
        label = sketch.straight.get(row)
        room = max(MIN_ROW_GAP, label.height + 2 * LABEL_PAD if label else 0)
        sketch.section.append(y + room / 2)
        y += room
    sketch.bottom = y


def _position(lifecycle: Lifecycle, sketch: _Sketch) -> DiagramLayout:
    zones = {side: _zone_width(sketch, side) for side in SIDES}
    rails = {side: sketch.rail(side) for side in SIDES}
    wide = {side: sketch.cells[name].width if name else 0 for side, name in rails.items()}
    centre = MARGIN + wide[-1] + zones[-1] + sketch.half
    width = centre + sketch.half + zones[1] + wide[1] + MARGIN
    half, rows = sketch.half, zip(sketch.plan.rows, sketch.middle, sketch.tall, strict=True)
    boxes = [
        StateBox(sketch.cells[name], centre - half, middle - tall / 2, 2 * half, tall) for name, middle, tall in rows
    ]
    edge_of = {side: centre + side * (half + zones[side]) for side in SIDES}
    for side, name in rails.items():
        if name:
            left = min(edge_of[side], edge_of[side] + side * wide[side])
            boxes.append(_rail(sketch, side, name, left))
    drawn = [
        *_draw_lines(sketch, centre, edge_of),
        *_draw_straight(sketch, centre, boxes),
        *_draw_entries(lifecycle, centre, (boxes[0], *boxes[len(sketch.plan.rows) :])),
    ]
    bottom = max(sketch.bottom, *(box.y + box.height for box in boxes))
    return DiagramLayout(width, bottom + MARGIN, tuple(boxes), tuple(drawn))


def _draw_entries(lifecycle: Lifecycle, centre: float, boxes: Iterable[StateBox]) -> Iterable[DrawnEdge]:
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
    labels = [label.width - sketch.half for label in sketch.straight.values() if side > 0]
    reach = max([0.0, *labels, *(arc.out for arc in sketch.arcs if arc.side == side)])
    if not sketch.rail(side):
        return reach
    lanes = [lane for lane in (*sketch.lanes, *sketch.across) if lane.side == side]
    runs = (lane.clear + LANE_RUN + lane.label.width for lane in lanes)
    return max(reach + LABEL_GAP, *runs, 4 * ARC_GAP)


def _rail(sketch: _Sketch, side: Side, name: str, x: float) -> StateBox:
    """The box of a rail, as tall as the rows it has lanes to."""
    served = {lane.row for lane in sketch.lanes if lane.side == side}
    reach = [(sketch.middle[row], sketch.tall[row] / 2) for row in sorted(served)]
    reach += [(lane.y[lane.row], RAIL_PAD) for lane in sketch.across]
    text = sketch.cells[name]
    top = min((y - half for y, half in reach), default=sketch.middle[0])
    bottom = max((y + half for y, half in reach), default=sketch.middle[0])
    tall = max(text.height, bottom - top)
    return StateBox(text, x, (top + bottom - tall) / 2, text.width, tall)


def _draw_lines(sketch: _Sketch, centre: float, edge_of: dict[Side, float]) -> Iterable[DrawnEdge]:
    for line in (*sketch.lanes, *sketch.across, *sorted(sketch.arcs, key=lambda arc: -arc.out)):
        y, edge = line.y[line.row], line.label.edge
        near = centre + line.side * sketch.half
        end = edge_of[line.side]
        if line.to is None:
            ends = [(edge_of[-line.side] if line in sketch.across else near, y), (end, y)]
            ends.sort(reverse=edge.source == sketch.rail(1) or edge.to == sketch.rail(-1))
        else:
            end, below = near + line.side * line.out, line.y[line.to]
            ends = [(near, y), (end, y), (end, below), (near, below)]
        middle = (near + line.side * line.clear + end) / 2
        top = y - LABEL_ABOVE_LINE - line.label.height
        yield DrawnEdge(line.label, tuple(ends), middle - line.label.width / 2, top)


def _draw_straight(sketch: _Sketch, centre: float, boxes: list[StateBox]) -> Iterable[DrawnEdge]:
    for row, label in sketch.straight.items():
        ends = ((centre, boxes[row].y + boxes[row].height), (centre, boxes[row + 1].y))
        yield DrawnEdge(label, ends, centre + LABEL_GAP, sketch.section[row] - label.height / 2)
