"""rectpack's guillotine packers on our orders.

They know no kerf: pieces and boards are made larger by it, which comes to the same. They turn all
pieces or none, so an order in which some may not be turned is given to them with none turned.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import rectpack
from rectpack import guillotine

from kesin.workloads.optiplan.optimizer.model import Demand

PACKERS = {
    name: getattr(guillotine, name)
    for name in dir(guillotine)
    if name.startswith("Guillotine") and name[10:11] == "B" and name[10:] not in {"Bssf", "Blsf", "Baf"}
}
SORTS = {
    "area": rectpack.SORT_AREA,
    "perimeter": rectpack.SORT_PERI,
    "difference": rectpack.SORT_DIFF,
    "short side": rectpack.SORT_SSIDE,
    "long side": rectpack.SORT_LSIDE,
    "ratio": rectpack.SORT_RATIO,
}
BINS = {"best fit": rectpack.PackingBin.BBF, "first fit": rectpack.PackingBin.BFF}


def boards_by_packer(
    demand: Demand, sorts: Sequence[str] = tuple(SORTS), bins: Sequence[str] = tuple(BINS)
) -> dict[str, int]:
    """The fewest boards of each packer, over the orders and the ways to choose a board."""
    fewest: dict[str, int] = {}
    for name, sort, chosen in product(PACKERS, sorts, bins):
        boards = _boards(demand, name, sort, chosen)
        fewest[name] = min(boards, fewest.get(name, boards))
    return fewest


def _boards(demand: Demand, name: str, sort: str, chosen: str) -> int:
    turns = all(part.may_turn for part in demand.parts)
    packer = rectpack.newPacker(
        mode=rectpack.PackingMode.Offline,
        bin_algo=BINS[chosen],
        pack_algo=PACKERS[name],
        sort_algo=SORTS[sort],
        rotation=turns,
    )
    room = demand.board.usable
    packer.add_bin(room.length + demand.saw.kerf_cross, room.width + demand.saw.kerf_rip, count=demand.pieces)
    for length, width in _pieces(demand):
        packer.add_rect(length, width)
    packer.pack()
    assert len(packer.rect_list()) == demand.pieces
    return len(packer)


def _pieces(demand: Demand) -> Iterator[tuple[int, int]]:
    for part in demand.parts:
        for _ in range(part.quantity):
            yield part.length + demand.saw.kerf_cross, part.width + demand.saw.kerf_rip
