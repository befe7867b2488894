"""Free rectangles that know the stages left to them: pieces are placed into their corners.

A rectangle carries the direction of the cut that made it and how many more stages it may take: a
cut in that direction needs none, one across it needs one. A rectangle of the last stage takes only
pieces as long, or as wide, as itself. As no rule of place and cut is always best, there are many.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

from kesin.workloads.optiplan.optimizer.problem import (
    CROSS,
    RIP,
    STRIP,
    Budget,
    Fillings,
    Orientation,
    PackingTask,
    may_start,
)

FitRule = Literal["short", "long", "area"]  # the remainder that the best place minimises
SplitRule = Literal["short_rest", "large_rest", "rip", "cross", "even_rests", "long_rest", "short_side", "long_side"]
FIT_RULES: Final[tuple[FitRule, ...]] = get_args(FitRule)
SPLIT_RULES: Final[tuple[SplitRule, ...]] = get_args(SplitRule)
FILL_LOOKS, PIECE_LOOKS = 100, 10  # the fixed costs of a call and of a piece, in looks
BOARD_PENALTY: Final = 10**15  # larger than any rest
INFINITE: Final = 10**30
NO_WAY: Final[Orientation] = (0, 0, False)
MAX_RECTANGLES: Final = 400  # free rectangles that are considered; the newest are kept

# length, width, board, x, y, stages left, whether the cut that made it is a rip, the least size of
# what is cut off in that direction (0 beyond the first stage), and whether `_takes` decides.
_Rectangle = tuple[int, int, int, int, int, int, bool, int, bool]


class PackingRules(NamedTuple):
    """How a place is chosen; with ``first_board``, a board is filled before the next."""

    fit: FitRule
    split: SplitRule
    first_board: bool = False
    block: int = 1  # equal pieces, at most, that are stacked in a strip of their own
    start: int = 0  # which of the task's starts is preferred


def fill_boards(  # noqa: C901, PLR0912, PLR0915 - calls would take most of its time
    task: PackingTask,
    pieces: Sequence[int],
    rules: PackingRules,
    budget: Budget,
    *,
    max_boards: int | None = None,
    skip: bool = False,
) -> Fillings | None:
    """Place pieces in order; None if boards are too few, unless ``skip`` omits what is left."""
    ways_of, least_across, least_along = task.orientations, task.least_across, task.least_along
    smallest = min(map(task.smallest.__getitem__, pieces), default=0)
    left = [0] * len(ways_of)
    for kind in pieces:
        left[kind] += 1
    fit, split, first_board, most_in_block, _ = rules
    by_area, by_short = fit == "area", fit == "short"
    fillings: Fillings = []
    rectangles: list[_Rectangle] = []
    new: _Rectangle  # what a placement leaves
    looks = FILL_LOOKS
    for kind in pieces:
        if not left[kind]:
            continue
        looks += len(rectangles) + PIECE_LOOKS
        least, best, best_way = INFINITE, -1, NO_WAY
        for way in ways_of[kind]:
            along, across, _ = way
            for index, rectangle in enumerate(rectangles):
                beside = rectangle[0] - along
                if beside < 0:
                    continue
                above = rectangle[1] - across
                if above < 0 or (rectangle[8] and not _takes(rectangle, beside, above)):
                    continue
                rest = rectangle[0] * rectangle[1] if by_area else beside if (beside < above) == by_short else above
                if first_board:
                    rest += rectangle[2] * BOARD_PENALTY
                if rest < least:
                    least, best, best_way = rest, index, way
        if best >= 0:
            length, width, board, x, y, stages, rips, strip, _ = rectangles.pop(best)
            along, across, turned = best_way
            if length == along or width == across:
                rip_first = length == along
            elif stages == 1:
                rip_first = rips
            else:
                rip_first = _rips_first(split, length, width, length - along, width - across)
            if rips != rip_first:
                stages, strip = stages - 1, 0
        elif max_boards is None or len(fillings) < max_boards:
            board, x, y, length, width = len(fillings), 0, 0, task.length, task.width
            fillings.append([])
            (along, across, turned), stages, rip_first, strip = _begin(task, kind, rules)
        elif skip:
            left[kind] = 0
            continue
        else:
            budget.spent += looks
            return None
        filling = fillings[board]
        count = 1
        if (most_in_block > 1 or strip) and length > along and width > across:
            size, room = (across, width) if rip_first else (along, length)
            if stages > 1:
                count = min(most_in_block, left[kind], room // size)
            block = min(max(count * size, strip), room)
            if size < block:  # a strip that is then cut across
                if block < room:
                    dx, dy = (0, block) if rip_first else (block, 0)
                    filling.append((x, y, length, width, STRIP, dx, dy, turned, rip_first))
                    rest_size, place = (length - dx, width - dy), (board, x + dx, y + dy)
                    new = (*rest_size, *place, stages, rip_first, strip, strip > 0)
                    length, width = dx or length, dy or width
                    if new[0] >= smallest <= new[1] and room - block >= strip:
                        rectangles.append(new)
                stages, strip, rip_first = stages - 1, 0, not rip_first
        left[kind] -= count
        filling.append((x, y, length, width, kind, along, across, turned, rip_first))
        beside, above = length - along, width - across
        last, restricted = stages <= 1, stages == 0 or strip > 0
        if rip_first:
            if length >= smallest <= above >= strip if stages else least_across.get(length, INFINITE) <= above:
                new = (length, above, board, x, y + across, stages, RIP, strip, restricted)
                rectangles.append(new)
            for _ in range(count - 1):  # in a row
                x += along
                filling.append((x, y, beside, across, kind, along, across, turned, CROSS))
                beside -= along
            if least_along.get(across, INFINITE) <= beside if last else beside >= smallest <= across:
                new = (beside, across, board, x + along, y, stages - 1, CROSS, 0, last)
                rectangles.append(new)
        else:
            if width >= smallest <= beside >= strip if stages else least_along.get(width, INFINITE) <= beside:
                new = (beside, width, board, x + along, y, stages, CROSS, strip, restricted)
                rectangles.append(new)
            for _ in range(count - 1):  # in a stack
                y += across
                filling.append((x, y, along, above, kind, along, across, turned, RIP))
                above -= across
            if least_across.get(along, INFINITE) <= above if last else above >= smallest <= along:
                new = (along, above, board, x, y + across, stages - 1, RIP, 0, last)
                rectangles.append(new)
        if len(rectangles) > MAX_RECTANGLES:
            del rectangles[0]
    budget.spent += looks
    return fillings


def _begin(task: PackingTask, kind: int, rules: PackingRules) -> tuple[Orientation, int, bool, int]:
    """Return how a piece lies on an empty board, the stages left, the first cut and its strip."""
    ways = task.orientations[kind]
    by = {"short": min, "long": max, "area": min}[rules.fit]
    way = min(ways, key=lambda way: by(task.length - way[0], task.width - way[1]))
    for start in task.starts[rules.start :] + task.starts[: rules.start]:
        if may_start(start, way, task.length, task.width):
            return way, start.stages - 1, start.rips, start.strip
    return way, 0, RIP, 0  # the piece is the board


def _takes(rectangle: _Rectangle, beside: int, above: int) -> bool:
    """Whether a piece that fits can be cut within the stages left, its strip being wide enough."""
    _, width, _, _, _, stages, rips, strip, _ = rectangle
    if not rips:
        width, beside, above = rectangle[0], above, beside
    if not stages:
        return not beside
    narrow = above > 0 and width - above < strip
    return not narrow or (stages > 1 and beside > 0)


def _rips_first(split_rule: SplitRule, length: int, width: int, beside: int, above: int) -> bool:
    """Whether the cut along x comes first."""
    if split_rule in {"short_rest", "long_rest"}:
        return (beside <= above) == (split_rule == "short_rest")
    if split_rule in {"short_side", "long_side"}:
        return (length <= width) == (split_rule == "short_side")
    if split_rule in {"large_rest", "even_rests"}:
        return (length * above >= width * beside) == (split_rule == "large_rest")
    return split_rule == "rip"
