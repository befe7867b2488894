"""The cut list: the steps at the saw in order, and the parts that each of them completes."""

from dataclasses import dataclass

from kesin.workloads.optiplan.optimizer import model


@dataclass(frozen=True, slots=True)
class SawStep:
    """A cut; ``fence`` is its distance from the edge. The blade takes the kerf behind it."""

    order: int
    stage: int  # 0 trims the board
    runs: model.CutDirection
    panel_length: model.Hundredths
    panel_width: model.Hundredths
    fence: model.Hundredths
    frees: tuple[int, ...] = ()  # numbers of the parts that this cut completes


def board_numbers(plan: model.CuttingPlan, number: int) -> str:
    """Return the boards that a layout (counted from 1) covers: ``3``, or ``3–5``."""
    first = 1 + sum(layout.times for layout in plan.layouts[: number - 1])
    last = first + plan.layouts[number - 1].times - 1
    return str(first) if first == last else f"{first}–{last}"


def saw_steps(demand: model.Demand, layout: model.Layout) -> list[SawStep]:
    """Return the trims, then the cuts as numbered in the drawing."""
    steps = trim_steps(demand)
    part_numbers = {placement.rect: placement.part + 1 for placement in layout.placements}
    for order, cut in enumerate(layout.cuts, len(steps) + 1):
        panel = cut.panel
        fence = cut.at - (panel.y if cut.runs == "rip" else panel.x)
        pieces = cut.split(demand.kerf)
        frees = tuple(part_numbers[piece] for piece in pieces if piece in part_numbers)
        steps.append(SawStep(order, cut.stage, cut.runs, panel.length, panel.width, fence, frees))
    return steps


def trim_steps(demand: model.Demand) -> list[SawStep]:
    """Return the cuts that trim the board; the others are numbered after them."""
    trims, length, width = demand.board.trims, demand.board.length, demand.board.width
    steps: list[SawStep] = []
    for trim in filter(None, (trims.bottom, trims.top)):
        steps.append(SawStep(len(steps) + 1, 0, "rip", length, width, trim))
        width -= trim
    for trim in filter(None, (trims.left, trims.right)):
        steps.append(SawStep(len(steps) + 1, 0, "cross", length, width, trim))
        length -= trim
    return steps
