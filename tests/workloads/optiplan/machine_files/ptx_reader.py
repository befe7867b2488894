"""Reads a PTX as a saw would: pieces, positions and sums from CUTS and kerfs alone.

It shares nothing with the writer but the record layouts, and counts in whole tenths of a
millimetre.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

Row = list[str]


@dataclass(frozen=True)
class Piece:
    """A piece of one board, in the frame of the board: x along its length, from the corner."""

    part: str
    x: int
    y: int
    length: int
    width: int


@dataclass
class Pattern:
    boards: int
    kind: int
    board: tuple[int, int]
    pieces: list[Piece] = field(default_factory=list)
    functions: set[int] = field(default_factory=set)
    sequence: list[int] = field(default_factory=list)


@dataclass
class _Node:
    function: int
    size: int
    repeat: int
    part: str
    made: int
    inner: list["_Node"] = field(default_factory=list)


class Overrun(AssertionError):
    pass


def tenths(text: str) -> int:
    value = Decimal(text) * 10
    assert value == int(value), f"{text} has more than one decimal"
    return int(value)


def records(data: bytes) -> dict[str, list[Row]]:
    text = data.decode("ascii")
    assert text.endswith("\r\n")
    assert "\n" not in text.replace("\r\n", "")
    rows: dict[str, list[Row]] = {}
    for line in text.removesuffix("\r\n").split("\r\n"):
        kind, *cells = line.split(",")
        rows.setdefault(kind, []).append(cells)
    for kind, found in rows.items():
        if kind not in ("HEADER", "JOBS", "CUTS"):
            assert [row[1] for row in found] == [str(n) for n in range(1, len(found) + 1)], kind
    return rows


def patterns(data: bytes) -> list[Pattern]:
    rows = records(data)
    return [_pattern(rows, row) for row in rows["PATTERNS"]]


def parts_cut(data: bytes) -> Counter[tuple[str, tuple[int, int]]]:
    """How many pieces fall in all, by part and by its sides, the longer first."""
    counts: Counter[tuple[str, tuple[int, int]]] = Counter()
    for pattern in patterns(data):
        for piece in pattern.pieces:
            sides = (max(piece.length, piece.width), min(piece.length, piece.width))
            counts[piece.part, sides] += pattern.boards
    return counts


def _pattern(rows: dict[str, list[Row]], row: Row) -> Pattern:
    board = rows["BOARDS"][int(row[2]) - 1]
    material = rows["MATERIALS"][int(board[3]) - 1]
    kerfs = [tenths(cell) for cell in material[6:8]]  # rip, cross
    trims = [tenths(cell) for cell in material[8:12]]  # rip front and rear, cross front and rear
    length, width = tenths(board[4]), tenths(board[5])
    found = Pattern(int(row[4]), int(row[3]), (length, width))
    turned, head = found.kind in (1, 3), found.kind in (2, 3)
    across, along = (length, width) if turned else (width, length)  # what rips divide, and crosses
    nodes: list[_Node] = []
    cuts = [cut for cut in rows["CUTS"] if cut[1] == row[1]]
    assert [cut[2] for cut in cuts] == [str(n) for n in range(1, len(cuts) + 1)]
    stack: list[_Node] = []
    first = 0 if head else 1
    for cut in cuts:
        node = _Node(int(cut[4]), tenths(cut[5]), int(cut[6]), cut[7], int(cut[8]))
        found.functions.add(node.function)
        if int(cut[3]):
            found.sequence.append(int(cut[3]))
        phase = node.function % 90
        assert first <= phase <= first + len(stack), "a row of a phase without the one before"
        del stack[phase - first :]
        (stack[-1].inner if stack else nodes).append(node)
        stack.append(node)
    room = (along - trims[2] - trims[3], across - trims[0] - trims[1])
    for part, u, v, long, wide in _fall(nodes, first, (trims[2], trims[0]), room, kerfs):
        found.pieces.append(Piece(part, v, u, wide, long) if turned else Piece(part, u, v, long, wide))
    made = sum(node.made for node in _all(nodes))
    assert made == len(found.pieces), "the quantities of the rows do not agree with the rows"
    return found


def _all(nodes: list[_Node]) -> Iterator[_Node]:
    for node in nodes:
        yield node
        yield from _all(node.inner)


def _fall(
    nodes: list[_Node], phase: int, corner: tuple[int, int], room: tuple[int, int], kerfs: list[int]
) -> Iterator[tuple[str, int, int, int, int]]:
    """Saw a panel; rips divide its second side, cross cuts its first."""
    rips = phase % 2 == 1
    at, end = corner[rips], corner[rips] + room[rips]
    for node in nodes:
        assert node.function % 90 == phase
        assert node.size > 0
        for _ in range(max(node.repeat, 1)):
            if at + node.size > end:
                raise Overrun(f"{at} + {node.size} > {end}")
            where = (corner[0], at) if rips else (at, corner[1])
            size = (room[0], node.size) if rips else (node.size, room[1])
            if node.inner:
                assert node.part == "0"
                yield from _fall(node.inner, phase + 1, where, size, kerfs)
            elif node.part != "0":
                yield (node.part, *where, *size)
            at += node.size + kerfs[0 if rips else 1]
