"""Orders to measure against: published ones, and a workshop's, the same at every run.

``beng1`` … ``beng7`` are Bengtsson's (1982), each a beginning of one list; ``gcut1`` is Beasley's
(1985). They know no kerf and no trim. The others are drawn from the sizes kitchens and wardrobes
are made of, with a seed each.
"""

from collections.abc import Sequence
from random import Random

from kesin.workloads.optiplan.optimizer.model import Board, CutPart, Demand, SawProfile, hundredths

BENGTSSON = (
    "8 6 11 4 10 3 4 7 12 6 11 6 12 8 3 6 4 3 3 8 9 1 1 3 8 6 11 3 11 1 9 8 9 1 11 5 1 7 7 8"
    " 10 3 2 8 8 3 7 3 8 4 2 7 12 7 1 2 3 8 1 1 12 7 3 4 8 4 11 5 5 6 8 8 4 1 10 3 12 7 12 3"
    " 10 7 5 4 3 2 7 7 11 8 10 5 4 7 5 4 2 3 3 3 8 3 11 4 8 1 8 7 6 5 8 5 4 8 8 8 7 2 6 2 9 2"
    " 7 6 1 5 5 2 11 4 11 3 3 1 9 2 11 7 10 4 5 4 11 2 7 3 12 6 11 5 2 6 10 4 10 4 1 3 2 4 5 6"
    " 11 1 1 1 7 7 3 8 10 8 4 7 7 6 9 5 5 2 7 3 11 6 9 7 7 6 9 6 4 2 4 6 3 1 12 4 4 2"
)
BEASLEY = "167 184 114 118 167 152 83 140 70 86 143 166 120 160 66 148 87 141 69 165"
KITCHEN = (
    (722, 580),
    (600, 495),
    (995, 322),
    (735, 397),
    (600, 450),
    (720, 300),
    (500, 500),
    (800, 400),
    (606, 496),
    (564, 100),
    (764, 560),
    (450, 130),
    (2100, 580),
)
WARDROBE = ((2360, 580), (2360, 300), (964, 560), (964, 100), (480, 560), (1180, 448), (764, 148))
DOORS = ((716, 396), (716, 446), (716, 596), (356, 596), (140, 596), (1956, 596))
BACKS = ((734, 588), (734, 438), (1964, 588), (978, 734))
SAMPLE = ((600, 450, 8), (720, 300, 6), (500, 500, 4), (1960, 720, 2), (800, 400, 6))


def instances() -> dict[str, Demand]:
    """All of them by name."""
    demands = {f"beng{number}": published(f"beng{number}", (25, 10), BENGTSSON, 20 * number) for number in range(1, 6)}
    demands |= {
        "beng6": published("beng6", (40, 25), BENGTSSON, 40),
        "beng7": published("beng7", (40, 25), BENGTSSON, 80),
        "gcut1": published("gcut1", (250, 250), BEASLEY, 10),
        "sample": Demand(
            "sample",
            Board.of(2100, 2800),
            tuple(
                CutPart(f"{length}", hundredths(length), hundredths(width), pieces, 3)
                for length, width, pieces in SAMPLE
            ),
        ),
    }
    for pieces in (25, 50, 100):
        for seed in (1, 2, 3):
            for kind, sizes, grains in (
                ("kitchen", KITCHEN, (0,)),
                ("grained", KITCHEN, (0, 1, 2, 3)),
                ("wardrobe", WARDROBE, (0,)),
            ):
                name = f"{kind}-{pieces}-{seed}"
                demands[name] = workshop(name, sizes, pieces, seed, grains)
    demands["doors-100"] = workshop("doors-100", DOORS, 100, 5, (1,))
    demands["backs-100"] = workshop("backs-100", BACKS, 100, 6, (0,), trim_mm=5)
    demands["long-100"] = workshop("long-100", KITCHEN, 100, 8, (0,), board=(1830, 3660))
    return demands


def published(name: str, board: tuple[int, int], numbers: str, pieces: int) -> Demand:
    """The first pieces of a printed table, as they stand there."""
    sides = [hundredths(text) for text in numbers.split()]
    pairs = list(zip(sides[::2], sides[1::2], strict=True))[:pieces]
    parts = tuple(CutPart(f"{n}", a, b, 1) for n, (a, b) in enumerate(pairs, start=1))
    return Demand(name, Board.of(*board, trim_mm=0), parts, SawProfile.of(0, max_stages=0))


def workshop(
    name: str,
    sizes: Sequence[tuple[int, int]],
    pieces: int,
    seed: int,
    grains: Sequence[int],
    *,
    board: tuple[int, int] = (2100, 2800),
    trim_mm: float = 10,
) -> Demand:
    """An order of so many pieces, drawn from some sizes and varied a little."""
    chance = Random(seed)
    parts: list[CutPart] = []
    left = pieces
    while left:
        length, width = chance.choice(sizes)
        quantity = min(left, chance.choice((1, 1, 2, 2, 3, 4)))
        length += chance.choice((0, 0, 0, -20, 15, 36))
        width += chance.choice((0, 0, -10, 8))
        part = CutPart(f"p{len(parts) + 1}", hundredths(length), hundredths(width), quantity, chance.choice(grains))
        parts.append(part)
        left -= quantity
    return Demand(name, Board.of(*board, trim_mm=trim_mm), tuple(parts))
