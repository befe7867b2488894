"""Writes plans as CSV: a cut list in keyed rows, and a parts list; sizes are exact millimetres."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from kesin.foundation.text import csv_text, escape_cell
from kesin.workloads.optiplan.optimizer.model import CuttingPlan, mm_text
from kesin.workloads.optiplan.optimizer.output.statistics import board_numbers, saw_steps

PARTS_HEADING: Final = (
    *("Description", "Length", "Width", "Qty", "Rotate", "Material", "Part code"),
    *("Top band", "Left band", "Bottom band", "Right band", "Works", "Notes"),
)
_CUTS_HEADING: Final = (
    *("Boards", "Cut", "Stage", "Direction", "Panel length", "Panel width", "Fence", "Frees parts"),
)


def cut_list_csv(plans: Sequence[CuttingPlan]) -> bytes:
    """Return the boards, parts and cuts of a batch.

    The first column says what a row is: N a name, M a material, K the kerf, S a board (length,
    width, number), P a part (length, width, number, label, may turn). Cuts are comments (@), which
    programs that read keyed rows ignore.
    """
    page = io.StringIO(newline="")
    rows = chain.from_iterable(map(_keyed_rows, plans))
    csv.writer(page).writerows((key, *map(escape_cell, cells)) for key, *cells in rows)
    return page.getvalue().encode("utf-8-sig")


def parts_csv(plans: Sequence[CuttingPlan]) -> bytes:
    """Return the parts of a batch in finished sizes, with the names of their bands."""
    return csv_text([PARTS_HEADING, *_part_rows(plans)]).encode("utf-8-sig")


def _keyed_rows(plan: CuttingPlan) -> Iterator[Sequence[Any]]:
    demand, saw = plan.demand, plan.demand.saw
    yield "N", demand.name
    yield "M", demand.material
    yield "K", mm_text(max(saw.kerf_rip, saw.kerf_cross))
    for index, times in sorted(plan.board_counts.items()):
        board = demand.boards[index]
        yield "S", mm_text(board.length), mm_text(board.width), times
    for part in demand.parts:
        size = mm_text(part.length), mm_text(part.width)
        yield "P", *size, part.quantity, part.name, "y" if part.may_turn else ""
    yield "@", *_CUTS_HEADING
    for number, layout in enumerate(plan.layouts, start=1):
        boards_cut = board_numbers(plan, number)
        for order, step in enumerate(saw_steps(demand, layout), start=1):
            sizes = map(mm_text, (*step.panel, step.fence))
            runs = step.runs if step.stage else f"trim {step.runs}"
            freed = ", ".join(demand.parts[part - 1].name for part in step.frees)
            yield "@", boards_cut, order, step.stage, runs, *sizes, freed


def _part_rows(plans: Iterable[CuttingPlan]) -> Iterator[Sequence[Any]]:
    parts = ((plan.demand.material, part) for plan in plans for part in plan.demand.parts)
    for number, (material, part) in enumerate(parts, start=1):
        up, lo, sx, dx = (band.name if band else "" for band in part.bands)
        turns = "y" if part.may_turn else "n"
        cells = (*map(mm_text, part.finished), part.quantity, turns, material, number)
        yield part.name, *cells, up, sx, lo, dx, "", " · ".join(part.notes)
