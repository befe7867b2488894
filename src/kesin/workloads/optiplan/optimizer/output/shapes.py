"""The shapes of an A4 page (y downwards), which SVG and PDF share, and its texts."""

import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, Literal, NamedTuple

from kesin.workloads.common.advice import Language

PAGE_LENGTH, PAGE_HEIGHT = 1188.0, 840.0  # a drawing; the sides of a printed page are swapped
UNITS_PER_MM: Final = 4  # on paper

Anchor = Literal["start", "middle", "end"]

_PAIRS: Final = tomllib.loads(files(__package__).joinpath("texts.toml").read_text("utf-8"))
TEXTS: Final[dict[Language, dict[str, str]]] = {
    "en": {name: english for name, (english, _) in _PAIRS.items()},
    "tr": {name: turkish for name, (_, turkish) in _PAIRS.items()},
}

INK, QUIET, FAINT = "#16191d", "#5b636d", "#c9ced6"
NARROW, WIDE = frozenset("iıjlİI.,:;'|!()[]/ft· "), frozenset("mwMWQGO×%@—…")


class Box(NamedTuple):
    """A filled rectangle with an optional outline."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str = ""
    stroke_width: float = 1.0


class Hatch(NamedTuple):
    """Slanting lines inside a rectangle."""

    x: float
    y: float
    width: float
    height: float
    stroke: str
    gap: float = 9.0
    stroke_width: float = 0.8

    def lines(self) -> Iterator[tuple[float, float, float, float]]:
        """Yield each line from its lower left to its upper right end."""
        offset = self.gap
        while offset < self.width + self.height:
            low, high = max(0.0, offset - self.height), min(offset, self.width)
            yield (self.x + low, self.y + offset - low, self.x + high, self.y + offset - high)
            offset += self.gap


class Line(NamedTuple):
    """A straight line; ``dash`` gives the lengths of stroke and gap."""

    x1: float
    y1: float
    x2: float
    y2: float
    stroke: str
    stroke_width: float = 1.0
    dash: tuple[float, float] | None = None


class Disc(NamedTuple):
    """A circle; ``x`` and ``y`` are its centre."""

    x: float
    y: float
    radius: float
    fill: str
    stroke: str = ""


class Text(NamedTuple):
    """A line of text on its baseline; turned, it runs upwards."""

    x: float
    y: float
    text: str
    size: float
    fill: str
    anchor: Anchor = "start"
    bold: bool = False
    turned: bool = False


Shape = Box | Hatch | Line | Disc | Text


class PaperHead(NamedTuple):
    """What names the order on its papers; empty on those that the optimiser itself writes."""

    order: str = ""
    customer: str = ""  # only for those who may see it
    date: str = ""
    code: str = ""
    bars: tuple[int, ...] = ()  # of its barcode: widths of bars and spaces in turn, in modules

    @property
    def text(self) -> str:
        return " · ".join(filter(None, (self.customer, self.order, self.date)))


NO_HEAD: Final = PaperHead()


def text_length(text: str, size: float, *, bold: bool = False) -> float:
    """Estimate the length of a text; never too short, so that a text that fits really fits."""
    ems = sum(0.36 if c in NARROW else 0.9 if c in WIDE else 0.65 for c in text)
    return ems * size * (1.1 if bold else 1.0)


def shorten(text: str, size: float, room: float, *, bold: bool = False) -> str:
    """Return the text, or as much of it as fits followed by an ellipsis."""
    if text_length(text, size, bold=bold) <= room:
        return text
    prefix = text
    while prefix and text_length(f"{prefix}…", size, bold=bold) > room:
        prefix = prefix[:-1]
    return f"{prefix.rstrip()}…" if prefix else ""
