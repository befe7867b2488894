"""Free rectangles: pieces into corners, by many rules of place and cut, as none is always best."""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, get_args

from kesin.workloads.optiplan.optimizer import problem

FitRule = Literal["short", "long", "area"]  # the remainder that the best place minimises
SplitRule = Literal[
    "short_rest", "large_rest", "rip", "cross", "even_rests", "long_rest", "short_side", "long_side"
]
FIT_RULES: Final[tuple[FitRule, ...]] = get_args(FitRule)
SPLIT_RULES: Final[tuple[SplitRule, ...]] = get_args(SplitRule)
PIECE_LOOKS: Final = 8  # the fixed cost of a piece, in looks
BOARD_PENALTY: Final = 10**15  # larger than any rest
INFINITE: Final = 10**30
MAX_RECTANGLES: Final = 400  # free rectangles that are considered; the newest are kept


class PackingRules(NamedTuple):
    """How a place is chosen; with ``first_board``, a board is filled before the next."""

    fit: FitRule
    split: SplitRule
    first_board: bool = False


def fill_boards(
    task: problem.PackingTask,
    pieces: Sequence[int],
    rules: PackingRules,
    budget: problem.Budget,
    *,
    max_boards: int | None = None,
    skip: bool = False,
) -> problem.Fillings | None:
    """Place pieces in order; None if boards are too few, unless ``skip`` omits what is left."""
    sides = (min(way[:2]) for kind in set(pieces) for way in task.orientations[kind])
    smallest = min(sides, default=0)
    fillings: problem.Fillings = []
    rectangles: list[problem.FreeRectangle] = []
    looks = 0
    for kind in pieces:
        looks += len(rectangles) + PIECE_LOOKS
        ways = task.orientations[kind]
        if (place := _find_best(rectangles, ways, rules)) is None:
            if max_boards is not None and len(fillings) >= max_boards:
                if skip:
                    continue
                budget.spent += looks
                return None
            rectangles.append((len(fillings), 0, 0, task.length, task.width))
            fillings.append([])
            if (place := _find_best(rectangles[-1:], ways, rules)) is None:
                raise ValueError("a piece larger than the board")
            place = (len(rectangles) - 1, *place[1:])
        index, along, across, turned = place
        board, x, y, length, width = rectangles.pop(index)
        rip_first = _rips_first(rules.split, length, width, length - along, width - across)
        drop = problem.Drop(x, y, length, width, kind, along, across, turned, rip_first)
        fillings[board].append(drop)
        above = (length if rip_first else along, width - across)
        beside = (length - along, across if rip_first else width)
        if above[0] >= smallest <= above[1]:
            rectangles.append((board, x, y + across, *above))
        if beside[0] >= smallest <= beside[1]:
            rectangles.append((board, x + along, y, *beside))
        if len(rectangles) > MAX_RECTANGLES:
            del rectangles[0]
    budget.spent += looks
    return fillings


def _find_best(
    rectangles: Sequence[problem.FreeRectangle],
    orientations: Sequence[problem.Orientation],
    rules: PackingRules,
) -> tuple[int, int, int, bool] | None:
    """Return the index of the best free rectangle, and the orientation of the piece in it."""
    best = None
    least = INFINITE
    by_area, by_short = rules.fit == "area", rules.fit == "short"
    for along, across, turned in orientations:
        for index, (board, _, _, length, width) in enumerate(rectangles):
            if along > length or across > width:
                continue
            if by_area:
                rest = length * width - along * across
            else:
                beside, above = length - along, width - across
                rest = beside if (beside < above) == by_short else above
            if rules.first_board:
                rest += board * BOARD_PENALTY
            if rest < least:
                least, best = rest, (index, along, across, turned)
    return best


def _rips_first(split_rule: SplitRule, length: int, width: int, beside: int, above: int) -> bool:
    """Whether the cut along x comes first."""
    if split_rule in {"short_rest", "long_rest"}:
        return (beside <= above) == (split_rule == "short_rest")
    if split_rule in {"short_side", "long_side"}:
        return (length <= width) == (split_rule == "short_side")
    if split_rule in {"large_rest", "even_rests"}:
        return (length * above >= width * beside) == (split_rule == "large_rest")
    return split_rule == "rip"
