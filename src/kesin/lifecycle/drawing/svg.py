"""A lifecycle as an SVG without external resources; a page may set its colours, ``--life-…``."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.drawing import text_metrics as metrics
from kesin.lifecycle.drawing.layout import MARGIN, DiagramLayout, DrawnEdge, Point, StateBox, lay_out
from kesin.lifecycle.drawing.shape import KINDS, Edge, Family, Kind, Translate, edges
from kesin.lifecycle.drawing.text_metrics import LINE_HEIGHT, SAMPLE_WIDTH, SMALL_SIZE, EdgeLabel
from kesin.lifecycle.vocabulary import GONE

Pairs = set[tuple[str, str]]  # edges, each by the states it joins
# Each colour is a plain fallback, that of the light theme, and a custom property.
STYLE: Final = Path(__file__).with_name("style.css").read_text("utf-8")
KIND_NAMES: Final = dict(zip(KINDS, ("worker", "clock", "operator or producer"), strict=True))
BOX_LEGEND: Final = "in a box: moves that do not leave the state"
LEGEND_GAP: Final = 24.0  # between entries of the legend
ICONS: Final[dict[Family, str]] = {
    "waiting": "M6 1.5a4.5 4.5 0 1 0 .01 0M6 3.6V6l1.7 1.2",
    "working": "M3.5 1.8L10 6L3.5 10.2Z",
    "retrying": "M10.2 4.6A4.5 4.5 0 1 0 10.4 7M10.6 1.6V4.8H7.4",
    "resting": "M4 2V10M8 2V10",
    "done": "M1.8 6.4L4.8 9.4L10.4 2.8",
    "failed": "M2.4 2.4L9.6 9.6M9.6 2.4L2.4 9.6",
    "expired": "M6 1.5a4.5 4.5 0 1 0 .01 0M2.9 9.1L9.1 2.9",
}
BEND: Final = 18.0
TIP: Final = 9.0


def svg(
    lifecycle: Lifecycle,
    highlighted: Collection[tuple[str, str]] = (),
    current: str | None = None,
    *,
    styled: bool = True,
    translate: Translate = str,
) -> str:
    """The SVG; enqueue is the edge ``("", to)``, and what is no longer declared is ignored."""
    layout = lay_out(lifecycle, translate)
    travelled = {edge.pair for edge in edges(lifecycle)} & set(highlighted)
    legend_width, legend = _legend(layout, translate)
    width = max(layout.width, 2 * MARGIN + legend_width)
    height = layout.height + LINE_HEIGHT + MARGIN
    prefix = f"life-{lifecycle.name}"
    title = translate("The lifecycle %(name)s") % {"name": lifecycle.name}
    parts = [
        f'<title id="{prefix}-title">{escape(title)}</title>',
        f'<desc id="{prefix}-desc">{escape(_description(lifecycle, current, translate))}</desc>',
        *((f"<style>\n{STYLE}</style>",) if styled else ()),
        f'<rect class="paper" width="{_number(width)}" height="{_number(height)}" rx="8"/>',
        f'<g transform="translate({_number((width - layout.width) / 2)} 0)">',
        *_edges(layout, travelled, translate),
        *(_box(box, travelled, current, translate) for box in layout.boxes),
        "</g>",
        f'<g class="legend" transform="translate({_number((width - legend_width) / 2)} 0)">',
        *legend,
        "</g>",
    ]
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-labelledby="{prefix}-title {prefix}-desc" '
        'class="kesin-life" '
        f'viewBox="0 0 {_number(width)} {_number(height)}" '
        f'width="{_number(width)}" height="{_number(height)}">'
    )
    return "\n".join((head, *parts, "</svg>", ""))


def _description(lifecycle: Lifecycle, current: str | None, translate: Translate) -> str:
    """The picture in words, for screen readers."""
    sentences = []
    for edge in edges(lifecycle):
        source, to = edge.source or translate("the start"), edge.to or translate("the end")
        ends = translate("%(source)s to %(to)s") % {"source": source, "to": to}
        sentences.append(f"{ends}: {', '.join(edge.names)}")
    text = f"{translate(lifecycle.doc)} {'; '.join(sentences)}."
    if current in lifecycle.state:
        text += f" {translate('The job is in %(state)s.') % {'state': current}}"
    return text.strip()


def _edges(layout: DiagramLayout, travelled: Pairs, translate: Translate) -> Iterator[str]:
    """Paint highlighted edges last, so that nothing crosses over them."""
    for drawn in sorted(layout.edges, key=lambda drawn: drawn.edge.pair in travelled):
        edge = drawn.edge
        lit = " lit" if edge.pair in travelled else " unlit" if travelled else ""
        yield f'<g class="edge {edge.kind}{lit}"{_about(edge, translate)}'
        route = _route(drawn)
        yield f'<path class="case" d="{route}"/><path class="line" d="{route}"/>{_tip(drawn)}'
        if edge.source == GONE:
            x, y = drawn.points[0]
            yield f'<circle class="tip" cx="{_number(x)}" cy="{_number(y)}" r="5"/>'
        yield f"{_label(drawn.label, drawn.x, drawn.y)}</g>"


def _about(edge: Edge, translate: Translate) -> str:
    """The attributes of an edge's group, and its title."""
    title = escape(f"{edge.source or translate('new')} → {edge.to}: {', '.join(edge.names)}")
    ends = f"data-from={quoteattr(edge.source)} data-to={quoteattr(edge.to)}"
    return f" {ends}><title>{title}</title>"


def _route(drawn: DrawnEdge) -> str:
    """The path with rounded corners; it ends where the arrow head begins."""
    *points, end = drawn.points
    points.append(_towards(end, points[-1], TIP - 1))
    path = [f"M{_pair(points[0])}"]
    inner = points[1:-1]
    for before, corner, after in zip(points, inner, points[2:], strict=False):
        radius = min(
            BEND,  # a segment between two corners serves both
            _distance(before, corner) / (2 if before in inner else 1),
            _distance(corner, after) / (2 if after in inner else 1),
        )
        path.append(f"L{_pair(_towards(corner, before, radius))}")
        path.append(f"Q{_pair(corner)} {_pair(_towards(corner, after, radius))}")
    return "".join((*path, f"L{_pair(points[-1])}"))


def _distance(start: Point, end: Point) -> float:
    return abs(start[0] - end[0]) + abs(start[1] - end[1])


def _towards(start: Point, end: Point, distance: float) -> Point:
    share = distance / max(_distance(start, end), 1)
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _tip(drawn: DrawnEdge) -> str:
    before, end = drawn.points[-2:]
    x, y = _towards(end, before, TIP)
    aside_x, aside_y = (end[1] - y) / 2, (end[0] - x) / 2
    one, other = (x + aside_x, y + aside_y), (x - aside_x, y - aside_y)
    return f'<path class="tip" d="M{_pair(end)}L{_pair(one)}L{_pair(other)}Z"/>'


def _label(label: EdgeLabel, x: float, y: float) -> str:
    parts = []
    for index, (kind, text) in enumerate(label.lines):
        base = y + index * LINE_HEIGHT + SMALL_SIZE
        parts += [_sample(kind, x, base)] if kind else []
        parts.append(_text("moves", x + SAMPLE_WIDTH if kind else x, base, text))
    return "".join(parts)


def _sample(kind: Kind, x: float, base: float) -> str:
    line = f"M{_pair((x, base - 4))}h{_number(SAMPLE_WIDTH - 6)}"
    return f'<path class="key {kind}" d="{line}"/>'


def _box(box: StateBox, travelled: Pairs, current: str | None, translate: Translate) -> str:
    text = box.cell
    classes = ["state", text.family]
    classes += ["terminal"] if text.terminal else []
    classes += ["here"] if text.name == current else []
    tall = text.height - 2 * metrics.BOX_PAD
    x, y = box.x + metrics.BOX_PAD, box.y + (box.height - tall) / 2
    parts = [f'<g class="{" ".join(classes)}" data-state={quoteattr(text.name)}>']
    parts.append(_rect("body", box, 0))
    if text.terminal:
        parts.append(_rect("inner", box, 3.5))
    if text.name == current:
        pin = f'cx="{_number(box.x + box.width - 13)}" cy="{_number(box.y + 13)}"'
        parts.append(f'<circle class="pin" {pin} r="4.5"/>')
    at = f"translate({_pair((x, y + 2))})"
    parts.append(f'<path class="icon" d="{ICONS[text.family]}" transform="{at}"/>')
    parts.append(_text("name", x + metrics.ICON_WIDTH, y + metrics.LARGE_SIZE - 1, text.name))
    y += LINE_HEIGHT
    for line in text.marks:
        parts.append(_text("mark", x + metrics.ICON_WIDTH, y + SMALL_SIZE + 1, line))
        y += LINE_HEIGHT
    if text.stays:
        y += LINE_HEIGHT / 2
        lit = " lit" if text.stays.edge.pair in travelled else ""
        parts.append(f'<g class="stays{lit}"{_about(text.stays.edge, translate)}')
        rule = f"M{_pair((box.x + 1, y - 2))}h{_number(box.width - 2)}"
        parts.append(f'<path class="rule" d="{rule}"/>')
        parts.append(f"{_label(text.stays, x, y + 3)}</g>")
    return "".join((*parts, "</g>"))


def _text(name: str, x: float, base: float, text: str) -> str:
    return f'<text class="{name}" x="{_number(x)}" y="{_number(base)}">{escape(text)}</text>'


def _rect(name: str, box: StateBox, inset: float) -> str:
    return (
        f'<rect class="{name}" x="{_number(box.x + inset)}" y="{_number(box.y + inset)}" '
        f'width="{_number(box.width - 2 * inset)}" height="{_number(box.height - 2 * inset)}" '
        f'rx="{_number(max(10 - inset, 6))}"/>'
    )


def _legend(layout: DiagramLayout, translate: Translate) -> tuple[float, list[str]]:
    """The legend of the lines: its width and its parts."""
    x, base = 0.0, layout.height + SMALL_SIZE
    entries: list[tuple[Kind | None, str]] = [*KIND_NAMES.items()]
    if any(box.cell.stays for box in layout.boxes):
        entries.append((None, BOX_LEGEND))
    parts = []
    for kind, name in entries:
        small_box = f'<path class="small" d="M{_pair((x, base - 9))}h15v10h-15z"/>'
        parts.append(_sample(kind, x, base) if kind else small_box)
        text = translate(name)
        parts.append(_text("who", x + SAMPLE_WIDTH, base, text))
        x += SAMPLE_WIDTH + metrics.width_of(text) + LEGEND_GAP
    return x - LEGEND_GAP, parts


def _number(number: float) -> str:
    """A number with at most one decimal, and never ``-0``."""
    return f"{round(number, 1) + 0:g}"


def _pair(point: Point) -> str:
    return f"{_number(point[0])} {_number(point[1])}"
