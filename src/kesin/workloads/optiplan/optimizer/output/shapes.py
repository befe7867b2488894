"""The few shapes a drawing is made of, on a page of A4 lying down; y runs downwards.

The screen (SVG) and the paper (PDF) draw the same shapes, so they cannot tell different stories.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

PAGE_LENGTH, PAGE_HEIGHT = 1188.0, 840.0
UNITS_A_MM: Final = 4  # on paper

Anchor = Literal["start", "middle", "end"]

NARROW, WIDE = frozenset("iıjlİI.,:;'|!()[]/ft· "), frozenset("mwMWQGO×%@—…")


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle, perhaps with an outline."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str = ""
    stroke_width: float = 1.0


@dataclass(frozen=True, slots=True)
class Hatch:
    """Slanting lines inside a rectangle."""

    x: float
    y: float
    width: float
    height: float
    stroke: str
    gap: float = 9.0
    stroke_width: float = 0.8

    def lines(self) -> Iterator[tuple[float, float, float, float]]:
        """Each line from its lower left to its upper right end."""
        offset = self.gap
        while offset < self.width + self.height:
            low, high = max(0.0, offset - self.height), min(offset, self.width)
            yield (
                self.x + low,
                self.y + offset - low,
                self.x + high,
                self.y + offset - high,
            )
            offset += self.gap


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line; ``dash`` gives the lengths of stroke and gap."""

    x1: float
    y1: float
    x2: float
    y2: float
    stroke: str
    stroke_width: float = 1.0
    dash: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Disc:
    """A circle around its middle."""

    x: float
    y: float
    radius: float
    fill: str
    stroke: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A line of text on its base line; turned, it runs upwards."""

    x: float
    y: float
    text: str
    size: float
    fill: str
    anchor: Anchor = "start"
    bold: bool = False
    turned: bool = False


Shape = Box | Hatch | Line | Disc | Text


def text_length(text: str, size: float, *, bold: bool = False) -> float:
    """About how long a text is; on the long side, so that what is said to fit does."""
    ems = sum(0.36 if c in NARROW else 0.9 if c in WIDE else 0.65 for c in text)
    return ems * size * (1.1 if bold else 1.0)


def shortened(text: str, size: float, room: float, *, bold: bool = False) -> str:
    """The text, or as much of it as there is room for and an ellipsis."""
    if text_length(text, size, bold=bold) <= room:
        return text
    kept = text
    while kept and text_length(f"{kept}…", size, bold=bold) > room:
        kept = kept[:-1]
    return f"{kept.rstrip()}…" if kept else ""
