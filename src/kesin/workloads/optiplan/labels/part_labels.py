"""The labels of an order's parts, in the order in which the saw frees the pieces."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.labels.ids import PieceId
from kesin.workloads.optiplan.optimizer.model import CutPart, CuttingPlan, Layout, size_text
from kesin.workloads.optiplan.optimizer.output.shapes import PaperHead
from kesin.workloads.optiplan.optimizer.output.statistics import trim_steps
from kesin.workloads.optiplan.orders.numbers import format_number
from kesin.workloads.optiplan.orders.payload import CuttingOrder, OrderPart


@dataclass(frozen=True, slots=True)
class PartLabel:
    """The label of one piece."""

    piece: PieceId
    head: PaperHead
    part: CutPart
    bands: tuple[str, ...]  # as the order names them: up, lo, sx, dx
    material: str
    drill: str
    notes: str  # such as the room
    layout: int = 0  # as the drawing counts them, from 1; 0: the plan is not known
    board: str = ""  # such as 3/7
    cut: int = 0  # 0: trimming frees it
    turned: bool = False

    @property
    def finished(self) -> str:
        return size_text(*self.part.finished)


_Place = tuple[int, str, int, bool]  # layout, board, cut, turned


def part_labels(job: Job, head: PaperHead, plans: Sequence[CuttingPlan]) -> Iterator[PartLabel]:
    """Yield a label for each piece. A plan without boards gives its parts in their order.

    The plans are those of the whole order, so that a part has the number that it has there.
    """
    parts = CuttingOrder.from_job(job).payload.parts
    layouts = 0
    for plan, numbers in zip(plans, part_numbers(parts), strict=True):
        made: Counter[int] = Counter()
        for index, place in _pieces(plan, layouts):
            part, given = plan.demand.parts[index], parts[numbers[index]]
            made[index] += 1
            edges = (given.edge_up, given.edge_lo, given.edge_sx, given.edge_dx)
            bands = zip(edges, part.bands, strict=True)  # a back has none, whatever is ordered
            thickness = f"{format_number(given.thickness_mm)} mm"
            yield PartLabel(
                PieceId(head.code, numbers[index] + 1, made[index]),
                head,
                part,
                tuple((name or "") if band else "" for name, band in bands),
                f"{thickness} · {given.material_code} · {given.color}",
                given.delik_kodu or "",
                " · ".join(filter(None, (given.iidesc, given.desc1))),
                *place,
            )
        layouts += len(plan.layouts)


def part_numbers(parts: Sequence[OrderPart]) -> list[list[int]]:
    """Return the indices of the order's parts in each of its plans: by batch, then by material."""
    plans: dict[tuple[object, ...], dict[str, list[int]]] = {}
    for index, part in enumerate(parts):
        batch = plans.setdefault((part.part_type, part.color, part.thickness_mm), {})
        batch.setdefault(part.material_code.strip(), []).append(index)
    return [numbers for batch in plans.values() for numbers in batch.values()]


def _pieces(plan: CuttingPlan, layouts: int) -> Iterator[tuple[int, _Place]]:
    """Yield the index of each piece's part, and its place, after so many layouts of other plans."""
    if not plan.layouts:
        for index, part in enumerate(plan.demand.parts):
            yield from [(index, (0, "", 0, False))] * part.quantity
    board = 0
    for number, layout in enumerate(plan.layouts, layouts + 1):
        freed = list(_freed(plan, layout))
        for _ in range(layout.times):
            board += 1
            for cut, index, turned in freed:
                yield index, (number, f"{board}/{plan.boards}", cut, turned)


def _freed(plan: CuttingPlan, layout: Layout) -> Iterator[tuple[int, int, bool]]:
    """Yield number of the cut, part and whether it is turned, of each piece as it falls."""
    places = {place.rect: (place.part, place.turned) for place in layout.placements}
    trims = len(trim_steps(plan.demand.boards[layout.board]))
    for number, cut in enumerate(layout.cuts, trims + 1):
        for rect in cut.split(plan.demand.saw):
            if (place := places.pop(rect, None)) is not None:
                yield number, *place
    for place in places.values():  # a piece as large as the board inside its trims
        yield 0, *place
