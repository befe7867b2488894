"""The plan as an SVG, without a library: all boards or a single one, every text escaped."""

from collections.abc import Sequence
from html import escape
from typing import Final

from kesin.workloads.common.advice import Language
from kesin.workloads.optiplan.optimizer.model import CuttingPlan
from kesin.workloads.optiplan.optimizer.output import shapes
from kesin.workloads.optiplan.optimizer.output.board import draw_layout
from kesin.workloads.optiplan.optimizer.output.shapes import PAGE_HEIGHT, PAGE_LENGTH, TEXTS
from kesin.workloads.optiplan.optimizer.output.xml import replace_unwritable

FONT: Final = "'DejaVu Sans', Verdana, 'Segoe UI', system-ui, sans-serif"


def draw_svg(
    plans: Sequence[CuttingPlan], language: Language = "en", *, only: int | None = None
) -> str:
    """Return all boards one below the other, or ``only`` one, counted across all plans."""
    boards = [(plan, number) for plan in plans for number in range(1, len(plan.layouts) + 1)]
    name = plans[0].demand.name
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
        lines += [group, *map(_shape_element, draw_layout(plan, number, language)), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def _shape_element(shape: shapes.Shape) -> str:
    match shape:
        case shapes.Box():
            outline = _stroke(shape.stroke, shape.stroke_width)
            return (
                f'<rect x="{shape.x:.1f}" y="{shape.y:.1f}" width="{max(shape.width, 0):.1f}"'
                f' height="{max(shape.height, 0):.1f}" fill="{shape.fill}"{outline}/>'
            )
        case shapes.Hatch():
            path = "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for a, b, c, d in shape.lines())
            return f'<path d="{path}"{_stroke(shape.stroke, shape.stroke_width)}/>'
        case shapes.Line():
            dash = f' stroke-dasharray="{shape.dash[0]:g} {shape.dash[1]:g}"' if shape.dash else ""
            return (
                f'<line x1="{shape.x1:.1f}" y1="{shape.y1:.1f}" x2="{shape.x2:.1f}"'
                f' y2="{shape.y2:.1f}"{_stroke(shape.stroke, shape.stroke_width)}{dash}/>'
            )
        case shapes.Disc():
            return (
                f'<circle cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:.1f}"'
                f' fill="{shape.fill}"{_stroke(shape.stroke, 1.0)}/>'
            )
        case shapes.Text():
            return _text_element(shape)


def _text_element(shape: shapes.Text) -> str:
    place = f'x="{shape.x:.1f}" y="{shape.y:.1f}"'
    attributes = f' {place} font-size="{shape.size:.1f}" fill="{shape.fill}"'
    if shape.anchor != "start":
        attributes += f' text-anchor="{shape.anchor}"'
    if shape.bold:
        attributes += ' font-weight="700"'
    if shape.turned:
        attributes += f' transform="rotate(-90 {shape.x:.1f} {shape.y:.1f})"'
    return f"<text{attributes}>{_escape_text(shape.text)}</text>"


def _stroke(stroke: str, width: float) -> str:
    return f' stroke="{stroke}" stroke-width="{width:g}"' if stroke else ""


def _escape_text(text: str) -> str:
    return escape(replace_unwritable(text))
