"""A lifecycle as a picture that stands alone: no script, no font file, nothing from elsewhere.

Colours are custom properties with a plain fallback. A page that shows the picture inline may set
``--life-…`` itself, or serve ``STYLE`` in its own style sheet and ask for ``styled=False``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.drawing.layout import MARGIN, Box, Picture, Wire, lay_out
from kesin.lifecycle.drawing.shape import FAMILIES, KINDS, Edge, Family, Kind, edges
from kesin.lifecycle.drawing.text_metrics import (
    BOX_PAD,
    ICON,
    KEY,
    LARGE,
    LINE,
    SMALL,
    Label,
    Say,
    width_of,
)
from kesin.lifecycle.vocabulary import GONE

LIGHT: Final = {
    "paper": "#ffffff",
    "ink": "#1f2328",
    "muted": "#57606a",
    "line": "#6b7580",
    "faint": "#d5dae0",
    "accent": "#0a5bd3",
    "waiting": "#566b7f",
    "waiting-fill": "#eef2f6",
    "working": "#1b62c4",
    "working-fill": "#e8f1fd",
    "retrying": "#8f5f00",
    "retrying-fill": "#fdf3dc",
    "resting": "#7447c4",
    "resting-fill": "#f4effd",
    "done": "#1a7437",
    "done-fill": "#e6f5ea",
    "failed": "#bd3028",
    "failed-fill": "#fdeeec",
    "expired": "#656d76",
    "expired-fill": "#f1f2f4",
}
DARK: Final = {
    "paper": "#14171c",
    "ink": "#e6e8eb",
    "muted": "#a0a9b4",
    "line": "#8a94a0",
    "faint": "#343b44",
    "accent": "#6cb0ff",
    "waiting": "#94abc1",
    "waiting-fill": "#1c242d",
    "working": "#74b0fb",
    "working-fill": "#152741",
    "retrying": "#e0a73a",
    "retrying-fill": "#2e2511",
    "resting": "#ba9af5",
    "resting-fill": "#261d3b",
    "done": "#5bc676",
    "done-fill": "#132a1b",
    "failed": "#f28b82",
    "failed-fill": "#341c1b",
    "expired": "#a0a7af",
    "expired-fill": "#20242a",
}
DASHES: Final[dict[Kind, str]] = {"worker": "none", "clock": "7 4", "person": "0.1 5"}
WHO: Final[dict[Kind, str]] = {
    "worker": "worker",
    "clock": "clock",
    "person": "operator or producer",
}
STAYS: Final = "in a box: moves that stay there"
BETWEEN_WORDS: Final = 24.0  # of the legend
ICONS: Final[dict[Family, str]] = {
    "waiting": "M6 1.5a4.5 4.5 0 1 0 .01 0M6 3.6V6l1.7 1.2",
    "working": "M3.5 1.8L10 6L3.5 10.2Z",
    "retrying": "M10.2 4.6A4.5 4.5 0 1 0 10.4 7M10.6 1.6V4.8H7.4",
    "resting": "M4 2V10M8 2V10",
    "done": "M1.8 6.4L4.8 9.4L10.4 2.8",
    "failed": "M2.4 2.4L9.6 9.6M9.6 2.4L2.4 9.6",
    "expired": "M6 1.5a4.5 4.5 0 1 0 .01 0M2.9 9.1L9.1 2.9",
}
SCOPE: Final = ".kesin-life"  # every rule is kept to the picture, wherever it is shown
BEND: Final = 18.0
TIP: Final = 9.0


def svg(
    lifecycle: Lifecycle,
    lit: Collection[tuple[str, str]] = (),
    here: str | None = None,
    *,
    styled: bool = True,
    say: Say = str,
) -> str:
    """The picture; ``lit`` edges (from, to) and the state ``here`` stand out.

    A birth is the edge ``("", to)``. Pairs and states the lifecycle does not know are passed over:
    an old job may have travelled edges that are no longer declared. ``say`` translates the
    drawing's own words; states and moves are called as they are declared.
    """
    picture = lay_out(lifecycle, say)
    known = {edge.pair for edge in edges(lifecycle)}
    travelled = known & set(lit)
    below, legend = _legend(picture, say)
    width = max(picture.width, 2 * MARGIN + below)
    height = picture.height + LINE + MARGIN
    name = f"life-{lifecycle.name}"
    title = say("The lifecycle %(name)s") % {"name": lifecycle.name}
    inside = [
        f'<title id="{name}-title">{escape(title)}</title>',
        f'<desc id="{name}-desc">{escape(_told(lifecycle, here, say))}</desc>',
        *((f"<style>\n{STYLE}</style>",) if styled else ()),
        f'<rect class="paper" width="{_n(width)}" height="{_n(height)}" rx="8"/>',
        f'<g transform="translate({_n((width - picture.width) / 2)} 0)">',
        *_wires(picture, travelled, say),
        *(_box(box, travelled, here, say) for box in picture.boxes),
        "</g>",
        f'<g class="legend" transform="translate({_n((width - below) / 2)} 0)">',
        *legend,
        "</g>",
    ]
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'aria-labelledby="{name}-title {name}-desc" '
        f'class="{SCOPE[1:]}" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" height="{_n(height)}">'
    )
    return "\n".join((head, *inside, "</svg>", ""))


def _told(lifecycle: Lifecycle, here: str | None, say: Say) -> str:
    """The picture in words, for those who do not see it."""
    told = []
    for edge in edges(lifecycle):
        ends = {"source": edge.source or say("the start"), "to": edge.to or say("the end")}
        told.append(f"{say('%(source)s to %(to)s') % ends}: {', '.join(edge.names)}")
    place = (
        f" {say('The job is in %(state)s.') % {'state': here}}" if here in lifecycle.state else ""
    )
    return f"{say(lifecycle.doc)} {'; '.join(told)}.{place}".strip()


def _wires(picture: Picture, travelled: set[tuple[str, str]], say: Say) -> Iterator[str]:
    """Lit edges are painted last, so that nothing crosses over them."""
    for wire in sorted(picture.wires, key=lambda wire: wire.edge.pair in travelled):
        edge = wire.edge
        lit = " lit" if edge.pair in travelled else " unlit" if travelled else ""
        yield f'<g class="edge {edge.kind}{lit}"{_ends(edge)}><title>{_title(edge, say)}</title>'
        route = _route(wire)
        yield f'<path class="case" d="{route}"/><path class="line" d="{route}"/>{_tip(wire)}'
        if edge.source == GONE:
            x, y = wire.points[0]
            yield f'<circle class="tip" cx="{_n(x)}" cy="{_n(y)}" r="5"/>'
        yield f"{_label(wire.label, wire.x, wire.y)}</g>"


def _ends(edge: Edge) -> str:
    return f" data-from={quoteattr(edge.source)} data-to={quoteattr(edge.to)}"


def _title(edge: Edge, say: Say) -> str:
    return escape(f"{edge.source or say('new')} → {edge.to}: {', '.join(edge.names)}")


def _route(wire: Wire) -> str:
    """The line with its corners rounded, ending where the arrow head begins."""
    points = list(wire.points)
    (x, y), (end_x, end_y) = points[-2:]
    length = abs(end_x - x) + abs(end_y - y)
    back = (length - TIP + 1) / length
    points[-1] = (x + (end_x - x) * back, y + (end_y - y) * back)
    path = [f"M{_n(points[0][0])} {_n(points[0][1])}"]
    inner = points[1:-1]
    for before, corner, after in zip(points, inner, points[2:], strict=False):
        radius = min(
            BEND,  # a leg between two corners has to serve both
            _away(before, corner) / (2 if before in inner else 1),
            _away(corner, after) / (2 if after in inner else 1),
        )
        path.append(f"L{_towards(corner, before, radius)}")
        path.append(f"Q{_n(corner[0])} {_n(corner[1])} {_towards(corner, after, radius)}")
    path.append(f"L{_n(points[-1][0])} {_n(points[-1][1])}")
    return "".join(path)


def _away(one: tuple[float, float], other: tuple[float, float]) -> float:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def _towards(start: tuple[float, float], end: tuple[float, float], far: float) -> str:
    share = far / max(_away(start, end), 1)
    x = start[0] + (end[0] - start[0]) * share
    y = start[1] + (end[1] - start[1]) * share
    return f"{_n(x)} {_n(y)}"


def _tip(wire: Wire) -> str:
    (x, y), (end_x, end_y) = wire.points[-2:]
    ahead = (_sign(end_x - x), _sign(end_y - y))
    foot = (end_x - TIP * ahead[0], end_y - TIP * ahead[1])
    aside = (ahead[1] * TIP / 2, ahead[0] * TIP / 2)
    return (
        f'<path class="tip" d="M{_n(end_x)} {_n(end_y)}'
        f"L{_n(foot[0] + aside[0])} {_n(foot[1] + aside[1])}"
        f'L{_n(foot[0] - aside[0])} {_n(foot[1] - aside[1])}Z"/>'
    )


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)


def _label(label: Label, x: float, y: float) -> str:
    parts = []
    for index, line in enumerate(label.lines):
        base = y + index * LINE + SMALL
        for piece in line:
            left = x + piece.x
            if piece.kind:
                parts.append(_sample(piece.kind, left, base))
                left += KEY
            parts.append(_text("moves", left, base, piece.text))
    return "".join(parts)


def _sample(kind: Kind, x: float, base: float) -> str:
    return f'<path class="key {kind}" d="M{_n(x)} {_n(base - 4)}h{_n(KEY - 6)}"/>'


def _box(box: Box, travelled: set[tuple[str, str]], here: str | None, say: Say) -> str:
    text = box.cell
    classes = ["state", text.family]
    classes += ["terminal"] if text.terminal else []
    classes += ["here"] if text.name == here else []
    tall = text.height - 2 * BOX_PAD
    x, y = box.x + BOX_PAD, box.y + (box.height - tall) / 2
    parts = [f'<g class="{" ".join(classes)}" data-state={quoteattr(text.name)}>']
    parts.append(_rect("body", box, 0))
    if text.terminal:
        parts.append(_rect("inner", box, 3.5))
    if text.name == here:
        pin = f'cx="{_n(box.x + box.width - 13)}" cy="{_n(box.y + 13)}"'
        parts.append(f'<circle class="pin" {pin} r="4.5"/>')
    at = f"translate({_n(x)} {_n(y + 2)})"
    parts.append(f'<path class="icon" d="{ICONS[text.family]}" transform="{at}"/>')
    parts.append(_text("name", x + ICON, y + LARGE - 1, text.name))
    y += LINE
    for line in text.marks:
        parts.append(_text("mark", x + ICON, y + SMALL + 1, line))
        y += LINE
    if text.stays and text.edge:
        y += LINE / 2
        lit = " lit" if text.edge.pair in travelled else ""
        title = _title(text.edge, say)
        parts.append(f'<g class="stays{lit}"{_ends(text.edge)}><title>{title}</title>')
        parts.append(f'<path class="rule" d="M{_n(box.x + 1)} {_n(y - 2)}h{_n(box.width - 2)}"/>')
        parts.append(f"{_label(text.stays, x, y + 3)}</g>")
    return "".join((*parts, "</g>"))


def _text(name: str, x: float, base: float, text: str) -> str:
    return f'<text class="{name}" x="{_n(x)}" y="{_n(base)}">{escape(text)}</text>'


def _rect(name: str, box: Box, inset: float) -> str:
    return (
        f'<rect class="{name}" x="{_n(box.x + inset)}" y="{_n(box.y + inset)}" '
        f'width="{_n(box.width - 2 * inset)}" height="{_n(box.height - 2 * inset)}" '
        f'rx="{_n(max(10 - inset, 6))}"/>'
    )


def _legend(picture: Picture, say: Say) -> tuple[float, list[str]]:
    """What the lines mean: the width, and the pieces side by side."""
    x, base = 0.0, picture.height + SMALL
    parts = []
    for kind in KINDS:
        parts.append(_sample(kind, x, base))
        who = say(WHO[kind])
        parts.append(_text("who", x + KEY, base, who))
        x += KEY + width_of(who) + BETWEEN_WORDS
    if any(box.cell.stays for box in picture.boxes):
        parts.append(f'<path class="small" d="M{_n(x)} {_n(base - 9)}h15v10h-15z"/>')
        stays = say(STAYS)
        parts.append(_text("who", x + KEY, base, stays))
        x += KEY + width_of(stays) + BETWEEN_WORDS
    return x - BETWEEN_WORDS, parts


def _n(number: float) -> str:
    """At most one decimal, and never ``-0``."""
    return f"{round(number, 1) + 0:g}"


def _style() -> str:
    """Every colour twice: plain for programs that know no custom properties, then as one."""

    def ink(what: str, name: str) -> str:
        return f"{what}:{LIGHT[name]};{what}:var(--life-{name})"

    def theme(colours: dict[str, str]) -> str:
        return ";".join(f"--life-{name}:{colour}" for name, colour in colours.items())

    pen = "fill:none;stroke-linecap:round;stroke-linejoin:round"
    rules = [
        f".line,& .key,& .small{{{pen};stroke-width:1.5;{ink('stroke', 'line')}}}",
        f".case{{fill:none;stroke-width:6;{ink('stroke', 'paper')}}}",
        f".tip{{{ink('fill', 'line')}}}",
        f".clock .line,& .key.clock{{stroke-dasharray:{DASHES['clock']}}}",
        f".person .line,& .key.person{{stroke-width:2.2;stroke-dasharray:{DASHES['person']}}}",
        f".paper{{{ink('fill', 'paper')}}}",
        f"text{{font-size:{_n(SMALL)}px;{ink('fill', 'ink')}}}",
        f".name{{font-size:{_n(LARGE)}px;font-weight:600}}",
        f".mark,& .who{{{ink('fill', 'muted')}}}",
        ".body{stroke-width:1.5}",
        ".inner{fill:none;stroke-width:1}",
        f".icon{{{pen};stroke-width:1.8}}",
        f".rule{{fill:none;stroke-width:1;{ink('stroke', 'faint')}}}",
        *(f".{one} .body{{{ink('fill', f'{one}-fill')};{ink('stroke', one)}}}" for one in FAMILIES),
        *(f".{one} .inner,& .{one} .icon{{{ink('stroke', one)}}}" for one in FAMILIES),
        f".here .body{{stroke-width:4;{ink('stroke', 'accent')}}}",
        f".pin{{{ink('fill', 'accent')}}}",
        ".unlit .line,& .unlit .tip{opacity:.5}",
        f".lit .line{{stroke-width:3;{ink('stroke', 'accent')}}}",
        f".lit .tip{{{ink('fill', 'accent')}}}",
        f".lit text{{{ink('fill', 'accent')}}}",
        f".lit .key{{{ink('stroke', 'accent')}}}",
    ]
    fonts = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"
    head = (
        f":where({SCOPE}){{color-scheme:light dark;{theme(LIGHT)}}}",
        f"@media (prefers-color-scheme:dark){{:where({SCOPE}){{{theme(DARK)}}}}}",
        f"{SCOPE}{{max-width:100%;height:auto;font-family:{fonts}}}",
    )
    return "\n".join((*head, *(f"{SCOPE} {rule.replace('&', SCOPE)}" for rule in rules), ""))


STYLE: Final = _style()
