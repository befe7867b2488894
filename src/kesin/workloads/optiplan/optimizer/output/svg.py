"""The plan as an SVG, without a library: all boards or a single one, every text escaped."""

from collections.abc import Sequence
from html import escape
from typing import Final

from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.optimizer.model import CuttingPlan
from kesin.workloads.optiplan.optimizer.output import shapes
from kesin.workloads.optiplan.optimizer.output.board import draw_layout
from kesin.workloads.optiplan.optimizer.output.shapes import NO_HEAD, PAGE_HEIGHT, PAGE_LENGTH, TEXTS, PaperHead
from kesin.workloads.optiplan.optimizer.output.xml import replace_unwritable

FONT: Final = "'DejaVu Sans', Verdana, 'Segoe UI', system-ui, sans-serif"


def draw_svg(
    plans: Sequence[CuttingPlan], language: Language = "en", *, only: int | None = None, head: PaperHead = NO_HEAD
) -> str:
    """Return all boards one below the other, or ``only`` one, counted across all plans."""
    boards = [(plan, number) for plan in plans for number in range(1, len(plan.layouts) + 1)]
    name = head.order or plans[0].demand.name
    if only is not None:
        boards = boards[only - 1 : only]
        name = " ".join(f"{plan.demand.name} {number}" for plan, number in boards)
    title, height = f"{TEXTS[language]['plan']} {name}", PAGE_HEIGHT * len(boards)
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE_LENGTH:g} {height:g}"'
            f' width="{PAGE_LENGTH:g}" height="{height:g}" font-family="{FONT}" role="img"'
            f' lang="{language}">'
        ),
        f"<title>{_escape_text(title)}</title>",
        f'<rect width="{PAGE_LENGTH:g}" height="{height:g}" fill="#ffffff"/>',
    ]
    for index, (plan, number) in enumerate(boards):
        group = f'<g transform="translate(0 {PAGE_HEIGHT * index:g})">'
        lines += [group, *map(_shape_element, draw_layout(plan, number, language, head)), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def _shape_element(shape: shapes.Shape) -> str:
    match shape:
        case shapes.Box(x, y, width, height, fill, stroke, thick):
            size = {"width": max(width, 0.0), "height": max(height, 0.0)}
            return _element("rect", x=x, y=y, **size, fill=fill, **_pen(stroke, thick))
        case shapes.Hatch():
            path = "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for a, b, c, d in shape.lines())
            return _element("path", d=path, **_pen(shape.stroke, shape.stroke_width))
        case shapes.Line(x1, y1, x2, y2, stroke, thick, dash):
            dashes = {"stroke-dasharray": f"{dash[0]:g} {dash[1]:g}"} if dash else {}
            return _element("line", x1=x1, y1=y1, x2=x2, y2=y2, **_pen(stroke, thick), **dashes)
        case shapes.Disc(x, y, radius, fill, stroke):
            return _element("circle", cx=x, cy=y, r=radius, fill=fill, **_pen(stroke, 1.0))
        case shapes.Text(x, y, text, size, fill, anchor, bold, turned):
            look: dict[str, str] = {"text-anchor": anchor} if anchor != "start" else {}
            look |= {"font-weight": "700"} if bold else {}
            look |= {"transform": f"rotate(-90 {x:.1f} {y:.1f})"} if turned else {}
            head = _element("text", x=x, y=y, **{"font-size": size}, fill=fill, **look)
            return f"{head.removesuffix('/>')}>{_escape_text(text)}</text>"


def _element(name: str, **attributes: str | float) -> str:
    texts = (f' {key}="{value if isinstance(value, str) else f"{value:.1f}"}"' for key, value in attributes.items())
    return f"<{name}{''.join(texts)}/>"


def _pen(stroke: str, width: float) -> dict[str, str]:
    return {"stroke": stroke, "stroke-width": f"{width:g}"} if stroke else {}


def _escape_text(text: str) -> str:
    return escape(replace_unwritable(text))
