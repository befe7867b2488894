"""The plan on a screen: one SVG with every board, or with a single one.

Written by hand, because so few shapes need no library; every text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from kesin.workloads.optiplan.optimizer.model import Plan
from kesin.workloads.optiplan.optimizer.output.board import picture
from kesin.workloads.optiplan.optimizer.output.shapes import (
    PAGE_HEIGHT,
    PAGE_LENGTH,
    Box,
    Disc,
    Hatch,
    Line,
    Shape,
    Text,
)
from kesin.workloads.optiplan.optimizer.output.texts import WORDS, Language
from kesin.workloads.optiplan.optimizer.output.xml import writable

FONT: Final = "'DejaVu Sans', Verdana, 'Segoe UI', system-ui, sans-serif"


def draw(plans: Sequence[Plan], language: Language = "en") -> str:
    """All boards of all plans, one below the other."""
    pages = [
        picture(plan, number, language)
        for plan in plans
        for number in range(1, len(plan.layouts) + 1)
    ]
    return _svg(pages, f"{WORDS[language]['plan']} {plans[0].demand.name}", language)


def draw_board(plan: Plan, number: int, language: Language = "en") -> str:
    """One board; ``number`` counts the layouts from 1."""
    title = f"{WORDS[language]['plan']} {plan.demand.name} {number}"
    return _svg([picture(plan, number, language)], title, language)


def _svg(pages: Sequence[Iterable[Shape]], title: str, language: Language) -> str:
    height = PAGE_HEIGHT * len(pages)
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {PAGE_LENGTH:g} {height:g}"'
            f' width="{PAGE_LENGTH:g}" height="{height:g}" font-family="{FONT}" role="img"'
            f' lang="{language}">'
        ),
        f"<title>{_safe(title)}</title>",
        f'<rect width="{PAGE_LENGTH:g}" height="{height:g}" fill="#ffffff"/>',
    ]
    for number, shapes in enumerate(pages):
        lines.append(f'<g transform="translate(0 {PAGE_HEIGHT * number:g})">')
        lines += [_element(shape) for shape in shapes]
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _element(shape: Shape) -> str:
    match shape:
        case Box():
            outline = _outline(shape.stroke, shape.stroke_width)
            return (
                f'<rect x="{shape.x:.1f}" y="{shape.y:.1f}" width="{max(shape.width, 0):.1f}"'
                f' height="{max(shape.height, 0):.1f}" fill="{shape.fill}"{outline}/>'
            )
        case Hatch():
            ways = "".join(f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}" for a, b, c, d in shape.lines())
            return f'<path d="{ways}"{_outline(shape.stroke, shape.stroke_width)}/>'
        case Line():
            dash = f' stroke-dasharray="{shape.dash[0]:g} {shape.dash[1]:g}"' if shape.dash else ""
            return (
                f'<line x1="{shape.x1:.1f}" y1="{shape.y1:.1f}" x2="{shape.x2:.1f}"'
                f' y2="{shape.y2:.1f}"{_outline(shape.stroke, shape.stroke_width)}{dash}/>'
            )
        case Disc():
            return (
                f'<circle cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:.1f}"'
                f' fill="{shape.fill}"{_outline(shape.stroke, 1.0)}/>'
            )
        case Text():
            return _text(shape)


def _text(shape: Text) -> str:
    told = f' x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size:.1f}" fill="{shape.fill}"'
    if shape.anchor != "start":
        told += f' text-anchor="{shape.anchor}"'
    if shape.bold:
        told += ' font-weight="700"'
    if shape.turned:
        told += f' transform="rotate(-90 {shape.x:.1f} {shape.y:.1f})"'
    return f"<text{told}>{_safe(shape.text)}</text>"


def _outline(stroke: str, width: float) -> str:
    return f' stroke="{stroke}" stroke-width="{width:g}"' if stroke else ""


def _safe(text: str) -> str:
    return escape(writable(text))
