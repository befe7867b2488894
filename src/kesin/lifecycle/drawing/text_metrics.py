"""Texts of a diagram in lines, with the widths of a wide font (DejaVu Sans): others need less."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.drawing import shape
from kesin.lifecycle.drawing.shape import Edge, Family, Kind, Translate

SMALL_SIZE: Final = 12.0
LARGE_SIZE: Final = 14.0
BOLD_FACTOR: Final = 1.1  # how much wider bold letters are
LINE_HEIGHT: Final = 16.0  # of small text
SAMPLE_WIDTH: Final = 22.0  # a sample of a line's style and the space after it
BOX_PAD: Final = 14.0
ICON_WIDTH: Final = 20.0  # the icon before a state's name and the space after it
BOX_TEXT_WIDTH: Final = 150.0

_WIDTHS: Final = (("ijl'|.,:; ", 0.32), ("ft()[]-/·", 0.40), ("r", 0.42), ("cszkvxyJ_", 0.57), ("mwMW%@", 0.95))
_EM: Final = {letter: width for letters, width in _WIDTHS for letter in letters}


def width_of(text: str, size: float = SMALL_SIZE) -> float:
    """The largest width that a text is likely to need."""
    return size * sum(_EM.get(letter, 0.69 if letter.isupper() else 0.63) for letter in text)


@dataclass(frozen=True, slots=True)
class EdgeLabel:
    """The names of an edge's moves as lines; a sample of a kind's line precedes those with one."""

    edge: Edge
    lines: tuple[tuple[Kind | None, str], ...]
    width: float

    @property
    def height(self) -> float:
        return len(self.lines) * LINE_HEIGHT


@dataclass(frozen=True, slots=True)
class StateText:
    """The text in a state's box: name, marks, and the moves that stay in the state."""

    name: str
    family: Family
    marks: tuple[str, ...]  # lines
    stays: EdgeLabel | None
    width: float
    height: float
    terminal: bool


def edge_label(edge: Edge, max_width: float, *, sampled: bool = False) -> EdgeLabel:
    """The wrapped names of an edge; samples mark the kinds, at least if there is more than one."""
    sampled = sampled or len(edge.groups) > 1
    indent = SAMPLE_WIDTH if sampled else 0.0
    lines = [
        (kind if sampled else None, text)
        for kind, names in edge.groups
        for text in wrap([*(f"{name}," for name in names[:-1]), names[-1]], max_width - indent)
    ]
    return EdgeLabel(edge, tuple(lines), indent + max(width_of(text) for _, text in lines))


def state_text(lifecycle: Lifecycle, name: str, min_width: float = 0, translate: Translate = str) -> StateText:
    """The text of a state's box and the size it needs, at least ``min_width`` wide."""
    state = lifecycle.state[name]
    span = shape.retention(lifecycle, name)
    words = list(shape.marks(state, translate, {"initial", "working", "holds_key"}))
    if span:
        words.append(translate("kept %(span)s") % {"span": " ".join(map(translate, span.split()))})
    loop = next((edge for edge in shape.edges(lifecycle) if edge.pair == (name, name)), None)
    stays = edge_label(loop, BOX_TEXT_WIDTH, sampled=True) if loop else None
    width = max(
        min_width - 2 * BOX_PAD,
        ICON_WIDTH + width_of(name, LARGE_SIZE) * BOLD_FACTOR,
        *(ICON_WIDTH + width_of(word) for word in words),
        stays.width if stays else 0,
    )
    lines = tuple(wrap(words, width - ICON_WIDTH, " · "))
    height = 2 * BOX_PAD + LINE_HEIGHT + len(lines) * LINE_HEIGHT
    if stays:
        height += stays.height + LINE_HEIGHT / 2
    family, wide = shape.family(lifecycle, name), width + 2 * BOX_PAD
    return StateText(name, family, lines, stays, wide, height, state.terminal)


def wrap(words: Iterable[str], max_width: float, separator: str = " ") -> Iterator[str]:
    """Break words into lines, with as many on a line as fit."""
    line = ""
    for word in words:
        longer = f"{line}{separator}{word}" if line else word
        if line and width_of(longer) > max_width:
            yield line
            longer = word
        line = longer
    if line:
        yield line
