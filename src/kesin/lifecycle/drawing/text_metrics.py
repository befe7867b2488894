"""The words in a lifecycle's picture, broken into lines and measured without a font.

Nobody knows which font will show the picture, so widths are those of a wide one (DejaVu Sans):
in any other there is a little more air than needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.drawing.shape import Edge, Family, Kind, edges, family, kept, marks

Say = Callable[[str], str]  # a sentence of the drawing in the language of whoever looks

SMALL: Final = 12.0
LARGE: Final = 14.0
BOLD: Final = 1.1  # how much wider a bold letter is
LINE: Final = 16.0  # from one small line to the next
KEY: Final = 22.0  # a sample of a line's style, and the room after it
BETWEEN: Final = 14.0  # two groups on one line
BOX_PAD: Final = 14.0
ICON: Final = 20.0  # the icon before a state's name, and the room after it
BOX_TEXT: Final = 150.0

_WIDTHS: Final = (
    ("ijl'|.,:; ", 0.32),
    ("ft()[]-/·", 0.40),
    ("r", 0.42),
    ("cszkvxyJ_", 0.57),
    ("mwMW%@", 0.95),
)
_EM: Final = {letter: width for letters, width in _WIDTHS for letter in letters}


def width_of(text: str, size: float = SMALL) -> float:
    """How much room a text may need."""
    return size * sum(_EM.get(letter, 0.69 if letter.isupper() else 0.63) for letter in text)


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text on one line; with a kind, a sample of that kind's line stands before it."""

    x: float
    text: str
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """An edge's names, in lines of pieces."""

    lines: tuple[tuple[Piece, ...], ...]
    width: float

    @property
    def height(self) -> float:
        return len(self.lines) * LINE


@dataclass(frozen=True, slots=True)
class Cell:
    """What is written in a state's box: name, marks, and the moves that stay here."""

    name: str
    family: Family
    marks: tuple[str, ...]  # lines
    stays: Label | None
    edge: Edge | None  # of the moves that stay
    width: float
    height: float
    terminal: bool


def label(edge: Edge, widest: float) -> Label:
    """The names wrapped; samples tell the kinds apart where an edge has more than one."""
    if len(edge.groups) == 1:
        lines = [(Piece(0, text),) for text in wrap(_listed(edge.names), widest)]
        return Label(tuple(lines), max(width_of(line[0].text) for line in lines))
    row, x = [], 0.0
    for kind, names in edge.groups:
        text = " ".join(_listed(names))
        row.append(Piece(x, text, kind))
        x += KEY + width_of(text) + BETWEEN
    return Label((tuple(row),), x - BETWEEN) if x - BETWEEN <= widest else _stacked(edge, widest)


def cell(lifecycle: Lifecycle, name: str, least: float = 0, say: Say = str) -> Cell:
    """The text of a state's box and the size it asks for, if it may be ``least`` wide anyway."""
    state = lifecycle.state[name]
    stay = kept(lifecycle, name)
    told = [say(mark) for mark in marks(state) if mark not in ("initial", "working", "holds key")]
    if stay:
        told.append(say("kept %(span)s") % {"span": " ".join(map(say, stay.split()))})
    loop = next((edge for edge in edges(lifecycle) if edge.pair == (name, name)), None)
    stays = _stacked(loop, BOX_TEXT) if loop else None
    wide = max(
        least - 2 * BOX_PAD,
        ICON + width_of(name, LARGE) * BOLD,
        *(ICON + width_of(word) for word in told),
        stays.width if stays else 0,
    )
    below = tuple(wrap(told, wide - ICON, " · "))
    tall = 2 * BOX_PAD + LINE + len(below) * LINE + (stays.height + LINE / 2 if stays else 0)
    return Cell(
        name=name,
        family=family(lifecycle, name),
        marks=below,
        stays=stays,
        edge=loop,
        width=wide + 2 * BOX_PAD,
        height=tall,
        terminal=state.terminal,
    )


def _stacked(edge: Edge, widest: float) -> Label:
    """Each group on lines of its own, always with samples."""
    lines = [
        (Piece(0, text, kind),)
        for kind, names in edge.groups
        for text in wrap(_listed(names), widest - KEY)
    ]
    return Label(tuple(lines), max(KEY + width_of(line[0].text) for line in lines))


def _listed(names: tuple[str, ...]) -> list[str]:
    return [f"{name}," for name in names[:-1]] + [names[-1]]


def wrap(words: Iterable[str], widest: float, between: str = " ") -> Iterator[str]:
    """Words to lines, as many to a line as fit."""
    line = ""
    for word in words:
        longer = f"{line}{between}{word}" if line else word
        if line and width_of(longer) > widest:
            yield line
            longer = word
        line = longer
    if line:
        yield line
