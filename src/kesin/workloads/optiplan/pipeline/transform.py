"""The transformation of an order: parts in centimetres become rows in millimetres, in batches.

Sizes are exact Decimals, and ties round away from zero. Trims never change a size: they are written
into the description. OptiPlanning subtracts bands itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from decimal import Decimal
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.numbers import (
    format_number,
    format_value,
    json_number,
    round_to_hundredths,
)
from kesin.workloads.optiplan.orders.payload import OrderPart, PartType, Payload
from kesin.workloads.optiplan.workshop.rules import NO_BAND, Rules

EDGES: Final = ("edge_up", "edge_lo", "edge_sx", "edge_dx")
_Bands = tuple[Decimal | None, Decimal | None, Decimal | None, Decimal | None]


@dataclass(frozen=True, slots=True)
class ImportRow:
    """One part as OptiPlanning reads it, in the order of the template's tags."""

    material_code: str
    length_mm: Decimal
    width_mm: Decimal
    quantity: int
    grain: int
    description: str
    edge_up_mm: Decimal | None
    edge_lo_mm: Decimal | None
    edge_sx_mm: Decimal | None
    edge_dx_mm: Decimal | None
    second_description: str
    description_1: str

    def cells(self) -> tuple[str | int | Decimal | None, ...]:
        """Return the twelve cells; None leaves a cell empty."""
        *cells, second, first = astuple(self)
        return (*cells, second or None, first or None)


@dataclass(frozen=True, slots=True)
class ImportBatch:
    """The rows that are cut from the same boards: one part type, colour and thickness."""

    part_type: PartType
    color: str
    thickness_mm: Decimal
    trim_mm: Decimal
    rows: tuple[ImportRow, ...]


@dataclass(frozen=True, slots=True)
class TransformedOrder:
    """An order ready to be written to import files."""

    batches: tuple[ImportBatch, ...]
    backing_edge_reset_count: int  # backs whose bands were dropped


def transform_order(payload: Payload, rules: Rules) -> TransformedOrder:
    """Convert every part; raises OrderProblem for the first missing rule."""
    sorted_rows: dict[tuple[PartType, str, Decimal], list[ImportRow]] = {}
    trims: dict[Decimal, Decimal] = {}
    resets = 0
    for index, part in enumerate(payload.parts):
        trims[part.thickness_mm] = trim_mm = _find_trim(part, index, rules)
        row = _build_row(part, index, rules, trim_mm)
        resets += part.part_type == "ARKALIK" and _asks_for_bands(part)
        sorted_rows.setdefault((part.part_type, part.color, part.thickness_mm), []).append(row)
    batches = tuple(
        ImportBatch(part_type, color, thickness_mm, trims[thickness_mm], tuple(rows))
        for (part_type, color, thickness_mm), rows in sorted_rows.items()
    )
    return TransformedOrder(batches, resets)


def _find_trim(part: OrderPart, index: int, rules: Rules) -> Decimal:
    thickness, own = format_number(part.thickness_mm), json_number(part.thickness_mm)
    if part.part_type == "ARKALIK" and part.thickness_mm not in rules.backing_thicknesses:
        why = "part %(part)s is a back of %(thickness)s mm, backs may be: %(known)s"
        known = ", ".join(map(format_number, rules.backing_thicknesses)) or "none"
        message = Message(why, part=part.id, thickness=thickness, known=known)
        code = OptiCode.BACKING_THICKNESS_UNKNOWN
        raise _part_problem(code, message, part, index, thickness_mm=own)
    trim_mm = rules.trim_mm(part.thickness_mm)
    if trim_mm is None:
        why = "part %(part)s is %(thickness)s mm thick, and no trim is set for that"
        message = Message(why, part=part.id, thickness=thickness)
        raise _part_problem(OptiCode.TRIM_RULE_MISSING, message, part, index, thickness_mm=own)
    return trim_mm


def _build_row(part: OrderPart, index: int, rules: Rules, trim_mm: Decimal) -> ImportRow:
    grain = rules.grain(part.grain)
    if grain is None:
        why = "part %(part)s has the grain %(grain)s, which the rules do not map"
        message = Message(why, part=part.id, grain=part.grain)
        raise _part_problem(OptiCode.INVALID_GRAIN, message, part, index, grain=part.grain)
    up, lo, sx, dx = _find_bands(part, index, rules.edge_mapping)
    return ImportRow(
        material_code=part.material_code,
        length_mm=round_to_hundredths(part.length_cm * rules.cm_to_mm_multiplier),
        width_mm=round_to_hundredths(part.width_cm * rules.cm_to_mm_multiplier),
        quantity=part.quantity,
        grain=grain,
        description=f"{part.part_type}_{part.id}_TRIM_{round_to_hundredths(trim_mm)}",
        edge_up_mm=up,
        edge_lo_mm=lo,
        edge_sx_mm=sx,
        edge_dx_mm=dx,
        second_description=part.iidesc or part.delik_kodu or "",
        description_1=part.desc1 or "",
    )


def _find_bands(part: OrderPart, index: int, band_sizes: Mapping[str, Decimal | None]) -> _Bands:
    """Return the four bands in mm. A back never has bands, whatever the order says."""
    if part.part_type == "ARKALIK":
        return None, None, None, None

    def band(field: str) -> Decimal | None:
        name = getattr(part, field)
        name = NO_BAND if name is None else name  # an empty text is not the same
        if name not in band_sizes:
            why = "part %(part)s, %(edge)s: the band %(band)s is not in the rules"
            message = Message(why, part=part.id, edge=field, band=format_value(name))
            code = OptiCode.EDGE_MAPPING_UNKNOWN
            raise _part_problem(code, message, part, index, edge=field, band=name)
        return band_sizes[name]

    up, lo, sx, dx = map(band, EDGES)
    return up, lo, sx, dx


def _asks_for_bands(part: OrderPart) -> bool:
    return any(getattr(part, field) not in {None, "", NO_BAND} for field in EDGES)


def _part_problem(
    code: OptiCode, message: str, part: OrderPart, index: int, **values: Any
) -> OrderProblem:
    return OrderProblem(code, message, {"part_id": part.id, "part_index": index, **values})
