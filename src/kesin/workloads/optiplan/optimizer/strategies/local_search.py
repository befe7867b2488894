"""Ruin and recreate: take a few boards apart, the emptiest first, and fill them again."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product, starmap
from random import Random
from typing import Final, NamedTuple, Self

from kesin.workloads.optiplan.optimizer.problem import (
    Budget,
    Filling,
    Fillings,
    PackingTask,
    fill_area,
    kinds_of,
    largest_rest,
)
from kesin.workloads.optiplan.optimizer.strategies.free_rectangles import (
    FIT_RULES,
    SPLIT_RULES,
    PackingRules,
    fill_boards,
)

REPACKED_BOARDS: Final = (2, 2, 2, 3, 3, 4)  # boards repacked at once
PERTURBATIONS: Final = (0.0, 0.15, 0.3, 0.6)
INSERTED: Final = (1, 1, 2, 3)  # pieces of the emptiest board that another one is offered
WORTH_POWERS: Final = (1.0, 1.0, 1.1)  # above 1, large pieces are worth more than their area
TRIES: Final = 8  # of a board, when a few are filled one by one
# Shares of all attempts.
INSERTIONS, ONE_BY_ONE, OF_THE_EMPTIEST = 0.25, 0.4, 0.9
MUTATIONS: Final = 0.2
HALF: Final = 0.5
# After so many tries in vain the pieces that are left over count more, by this part of their area;
# then, round after round, after so many tries a board. Such a search succeeds soon or never: after
# so many rounds all pieces count as at first.
PATIENCE, HARDER, PER_BOARD, ROUNDS = 1_000, 5, 2, 20
RULES: Final = tuple(starmap(PackingRules, product(FIT_RULES, SPLIT_RULES, (False, True), (1, 1, 1, 2, 3, 9))))
# What the sides of a piece are ordered by: its area, its long side, its short side, their sum.
MEASURES: Final[tuple[Callable[[tuple[int, int]], int], ...]] = (math.prod, max, min, sum)


class _Board(NamedTuple):
    weight: int  # of its pieces
    filling: Filling
    rules: PackingRules  # that it was filled by

    @classmethod
    def of(cls, task: PackingTask, filling: Filling, rules: PackingRules) -> Self:
        return cls(task.weight_of(filling), filling, rules)


def fill_board(task: PackingTask, budget: Budget, rng: Random, tries: int) -> Filling:
    """Return the worthiest board of some tries; empty if no piece fits."""
    best: Filling = []
    most, power = 0.0, rng.choice(WORTH_POWERS)
    pieces = task.pieces()
    for _ in range(tries if pieces else 0):
        order = _draw_order(task, pieces, rng)
        rules = _draw_rules(task, rng)
        filled = fill_boards(task, order, rules, budget, max_boards=1, skip=True) or [[]]
        worth = sum((values[5] * values[6]) ** power for values in filled[0])
        if worth > most:
            most, best = worth, filled[0]
            if len(kinds_of(best)) == len(pieces):
                break
    return best


def fill_one_by_one(
    task: PackingTask, budget: Budget, rng: Random, tries: int, *, max_boards: int | None = None, share: float = 1.0
) -> Fillings | None:
    """Fill board after board, each as often as there are pieces for it; None if they are too few.

    Beyond this share of the budget each board is tried once.
    """
    left = list(task.counts)
    remaining = len(task.pieces())
    fillings: Fillings = []
    while remaining:
        tries = tries if budget.has_left(share) else 1
        filling = fill_board(task.with_counts(left), budget, rng, tries)
        kinds = kinds_of(filling)
        counts = [(kind, kinds.count(kind)) for kind in set(kinds)]
        times = min(left[kind] // count for kind, count in counts)
        for kind, count in counts:
            left[kind] -= times * count
        remaining -= times * len(kinds)
        fillings += [filling] * times
        if max_boards is not None and len(fillings) + (remaining > 0) > max_boards:
            return None
    return fillings


def improve(
    task: PackingTask, start: Fillings, budget: Budget, share: float, *, seed: int, gather: bool = False
) -> Fillings:
    """Return better fillings, or the same: fewer boards, or, to gather what is empty, full ones and an empty one."""
    least = 1 if gather else task.least_boards()
    rng = Random(seed)
    boards = [_Board.of(task, each, _draw_rules(task, rng)) for each in start]
    idle = rounds = 0  # tries since the boards last became better, and how often there were too many
    while budget.has_left(share) and len(boards) > least:
        if not gather and idle >= (PER_BOARD * len(boards) if rounds % ROUNDS else PATIENCE):
            idle, rounds = 0, rounds + 1
            task = _reweigh(task, boards, reset=rounds % ROUNDS == 0)
            boards = [_Board.of(task, board.filling, board.rules) for board in boards]
        boards.sort(key=lambda board: board.weight)
        first = 0 if rng.random() < OF_THE_EMPTIEST else rng.randrange(len(boards) - 1)
        if rng.random() < INSERTIONS:
            chosen = [first, rng.randrange(first + 1, len(boards))]
            new = _insert(task, boards[first], boards[chosen[1]], budget, rng)
        else:
            others = [index for index in range(len(boards)) if index != first]
            count = min(rng.choice(REPACKED_BOARDS), len(boards))
            chosen = [first, *rng.sample(others, count - 1)]
            new = _repack(task, [boards[index] for index in chosen], budget, rng)
        idle += 1
        if new and (gain := _compare(new, [boards[index] for index in chosen])) >= 0:
            idle = 0 if gain else idle
            boards = [board for index, board in enumerate(boards) if index not in chosen] + new
    return [board.filling for board in boards]


def settle(task: PackingTask, start: Fillings, budget: Budget, share: float, *, seed: int) -> Fillings:
    """Fill the emptiest board again, so that its largest rest grows."""
    rng = Random(seed)
    fillings = sorted(start, key=fill_area)
    pieces = sorted(kinds_of(fillings[0]))
    largest = largest_rest(fillings[0])
    while budget.has_left(share):
        order, rules = _draw_order(task, pieces, rng), _draw_rules(task, rng)
        filled = fill_boards(task, order, rules, budget, max_boards=1)
        if filled and largest_rest(filled[0]) > largest:
            fillings[0], largest = filled[0], largest_rest(filled[0])
    return fillings


def _reweigh(task: PackingTask, boards: Sequence[_Board], *, reset: bool) -> PackingTask:
    """Let the pieces of the emptiest board count more, as they fit nowhere; or all by their areas again."""
    hard = set() if reset else set(kinds_of(min(boards, key=lambda board: board.weight).filling))
    areas = enumerate(map(task.area_of, range(len(task.counts))))
    weights = ((kind in hard) * area // HARDER + (area if reset else task.weights[kind]) for kind, area in areas)
    return replace(task, weights=tuple(weights))


def _insert(task: PackingTask, donor: _Board, taker: _Board, budget: Budget, rng: Random) -> list[_Board] | None:
    """Offer a board some pieces of another; None if it does not become as full as it was."""
    given, order, rules = kinds_of(donor.filling), kinds_of(taker.filling), taker.rules
    if rng.random() < MUTATIONS:
        drawn = _draw_rules(task, rng)
        rules = rng.choice(
            (
                rules._replace(fit=drawn.fit),
                rules._replace(split=drawn.split),
                rules._replace(block=drawn.block, start=drawn.start),
            )
        )
    if rng.random() < MUTATIONS:
        given.append(order.pop(rng.randrange(len(order))))
    rng.shuffle(given)
    number = rng.choice((*INSERTED, len(given)))
    for kind in given[:number]:
        order.insert(rng.randrange(len(order) + 1), kind)
    full = fill_boards(task, order, rules, budget, max_boards=1, skip=True) or [[]]
    filled = _Board.of(task, full[0], rules)
    if filled.weight < taker.weight:
        return None
    rest = order + given[number:]
    for kind in kinds_of(full[0]):
        rest.remove(kind)
    others = _fill(task, sorted(rest), 1, budget, rng) if rest else []
    return None if others is None else [*others, filled]


def _repack(task: PackingTask, old: Sequence[_Board], budget: Budget, rng: Random) -> list[_Board] | None:
    """Repack the pieces of some boards on no more boards than before; None if they do not fit."""
    pieces = sorted(kind for board in old for kind in kinds_of(board.filling))
    if rng.random() >= ONE_BY_ONE:
        return _fill(task, pieces, len(old), budget, rng)
    counts = [0] * len(task.counts)
    for kind in pieces:
        counts[kind] += 1
    rest = task.with_counts(counts)
    fillings = fill_one_by_one(rest, budget, rng, TRIES, max_boards=len(old)) or []
    return [_Board.of(task, each, _draw_rules(task, rng)) for each in fillings]


def _fill(
    task: PackingTask, pieces: Sequence[int], max_boards: int, budget: Budget, rng: Random
) -> list[_Board] | None:
    rules, order = _draw_rules(task, rng), _draw_order(task, pieces, rng)
    fillings = fill_boards(task, order, rules, budget, max_boards=max_boards)
    if fillings is None:
        return None
    return [_Board.of(task, filling, rules) for filling in fillings]


def _draw_order(task: PackingTask, pieces: Sequence[int], rng: Random) -> list[int]:
    perturbation = rng.choice(PERTURBATIONS)
    measure = rng.choice(MEASURES)
    rank = {
        kind: measure(task.orientations[kind][0][:2]) * (1 + perturbation * (rng.random() - 0.5))
        for kind in dict.fromkeys(pieces)
    }
    if rng.random() < HALF:  # equal pieces together, or each piece by itself
        return sorted(pieces, key=lambda kind: (-rank[kind], kind))
    ranked = [(rank[kind] * (1 + perturbation * (rng.random() - 0.5)), kind) for kind in pieces]
    return [kind for _, kind in sorted(ranked, reverse=True)]


def _draw_rules(task: PackingTask, rng: Random) -> PackingRules:
    rules = rng.choice(RULES)
    return rules._replace(start=1) if len(task.starts) > 1 and rng.random() < HALF else rules


def _compare(new: Sequence[_Board], old: Sequence[_Board]) -> int:
    """Return a positive number if the new boards are fewer, or fuller and emptier; 0 if they are as good."""
    gain = sum(board.weight**2 for board in new) - sum(board.weight**2 for board in old)
    return len(old) - len(new) or gain
