"""The texts of a lifecycle diagram, broken into lines and measured without a font.

The font that will show the picture is unknown, so widths are those of a wide font (DejaVu Sans):
in any other font there is a little more space than needed.
"""

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
GROUP_GAP: Final = 14.0  # between two groups on one line
BOX_PAD: Final = 14.0
ICON_WIDTH: Final = 20.0  # the icon before a state's name and the space after it
BOX_TEXT_WIDTH: Final = 150.0

_WIDTHS: Final = (
    ("ijl'|.,:; ", 0.32),
    ("ft()[]-/·", 0.40),
    ("r", 0.42),
    ("cszkvxyJ_", 0.57),
    ("mwMW%@", 0.95),
)
_EM: Final = {letter: width for letters, width in _WIDTHS for letter in letters}


def width_of(text: str, size: float = SMALL_SIZE) -> float:
    """The largest width that a text is likely to need."""
    return size * sum(_EM.get(letter, 0.69 if letter.isupper() else 0.63) for letter in text)


@dataclass(frozen=True, slots=True)
class TextRun:
    """A run of text on one line; with a kind, a sample of that kind's line precedes it."""

    x: float
    text: str
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class EdgeLabel:
    """The names of an edge's moves, as lines of text runs."""

    edge: Edge
    lines: tuple[tuple[TextRun, ...], ...]
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


def edge_label(edge: Edge, max_width: float) -> EdgeLabel:
    """The wrapped names of an edge; samples mark the kinds where there is more than one."""
    if len(edge.groups) == 1:
        lines = [(TextRun(0, text),) for text in wrap(_with_commas(edge.names), max_width)]
        return EdgeLabel(edge, tuple(lines), max(width_of(line[0].text) for line in lines))
    row, x = [], 0.0
    for kind, names in edge.groups:
        text = " ".join(_with_commas(names))
        row.append(TextRun(x, text, kind))
        x += SAMPLE_WIDTH + width_of(text) + GROUP_GAP
    width = x - GROUP_GAP
    if width > max_width:
        return _stacked_label(edge, max_width)
    return EdgeLabel(edge, (tuple(row),), width)


def state_text(
    lifecycle: Lifecycle, name: str, min_width: float = 0, translate: Translate = str
) -> StateText:
    """The text of a state's box and the size it needs, at least ``min_width`` wide."""
    state = lifecycle.state[name]
    span = shape.retention(lifecycle, name)
    untold = {"initial", "working", "holds_key"}
    words = list(shape.marks(state, translate, untold))
    if span:
        words.append(translate("kept %(span)s") % {"span": " ".join(map(translate, span.split()))})
    loop = next((edge for edge in shape.edges(lifecycle) if edge.pair == (name, name)), None)
    stays = _stacked_label(loop, BOX_TEXT_WIDTH) if loop else None
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


def _stacked_label(edge: Edge, max_width: float) -> EdgeLabel:
    """A label with each group on lines of its own, always with samples."""
    lines = [
        (TextRun(0, text, kind),)
        for kind, names in edge.groups
        for text in wrap(_with_commas(names), max_width - SAMPLE_WIDTH)
    ]
    width = SAMPLE_WIDTH + max(width_of(line[0].text) for line in lines)
    return EdgeLabel(edge, tuple(lines), width)


def _with_commas(names: tuple[str, ...]) -> list[str]:
    return [f"{name}," for name in names[:-1]] + [names[-1]]


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
