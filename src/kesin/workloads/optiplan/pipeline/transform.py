"""Parts in centimetres become rows in millimetres, sorted into batches that are cut together.

Exact throughout: sizes are Decimals, ties round away from zero. Trims never change a size; they
travel in the description, and OptiPlanning takes bands off by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.numbers import as_json, hundredths, key_of, shown
from kesin.workloads.optiplan.orders.payload import Part, PartType, Payload
from kesin.workloads.optiplan.workshop.rules import NO_BAND, Rules

_EDGES: Final = ("edge_up", "edge_lo", "edge_sx", "edge_dx")
_Bands = tuple[Decimal | None, Decimal | None, Decimal | None, Decimal | None]


@dataclass(frozen=True, slots=True)
class Row:
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
        """The twelve cells; None where there is nothing to write."""
        return (
            self.material_code,
            self.length_mm,
            self.width_mm,
            self.quantity,
            self.grain,
            self.description,
            self.edge_up_mm,
            self.edge_lo_mm,
            self.edge_sx_mm,
            self.edge_dx_mm,
            self.second_description or None,
            self.description_1 or None,
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """What may be cut from the same boards: one kind of part, one colour, one thickness."""

    part_type: PartType
    color: str
    thickness_mm: Decimal
    trim_mm: Decimal
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Transformed:
    """An order ready to be written."""

    batches: tuple[Batch, ...]
    backing_edge_reset_count: int  # backs that came with a band and lost it


def transform(payload: Payload, rules: Rules) -> Transformed:
    """Convert every part; raises OrderProblem with the first rule that is missing."""
    sorted_rows: dict[tuple[PartType, str, Decimal], list[Row]] = {}
    trims: dict[Decimal, Decimal] = {}
    resets = 0
    for index, part in enumerate(payload.parts):
        trims[part.thickness_mm] = trim_mm = _trim(part, index, rules)
        row = _row(part, index, rules, trim_mm)
        resets += part.part_type == "ARKALIK" and _asks_for_bands(part)
        sorted_rows.setdefault((part.part_type, part.color, part.thickness_mm), []).append(row)
    batches = tuple(
        Batch(part_type, color, thickness_mm, trims[thickness_mm], tuple(rows))
        for (part_type, color, thickness_mm), rows in sorted_rows.items()
    )
    return Transformed(batches, resets)


def _trim(part: Part, index: int, rules: Rules) -> Decimal:
    thickness = key_of(part.thickness_mm)
    if part.part_type == "ARKALIK" and not rules.backs_may_be(part.thickness_mm):
        known = ", ".join(map(key_of, rules.backing_thicknesses)) or "none"
        raise OrderProblem(
            OptiCode.BACKING_THICKNESS_UNKNOWN,
            f"part {part.id} is a back of {thickness} mm, backs may be: {known}",
            _about(part, index, thickness_mm=as_json(part.thickness_mm)),
        )
    trim_mm = rules.trim_mm(part.thickness_mm)
    if trim_mm is None:
        raise OrderProblem(
            OptiCode.TRIM_RULE_MISSING,
            f"part {part.id} is {thickness} mm thick, and no trim is set for that",
            _about(part, index, thickness_mm=as_json(part.thickness_mm)),
        )
    return trim_mm


def _row(part: Part, index: int, rules: Rules, trim_mm: Decimal) -> Row:
    length_mm = hundredths(part.length_cm * rules.cm_to_mm_multiplier)
    width_mm = hundredths(part.width_cm * rules.cm_to_mm_multiplier)
    grain = rules.grain(part.grain)
    if grain is None:
        raise OrderProblem(
            OptiCode.INVALID_GRAIN,
            f"part {part.id} has the grain {part.grain}, which the rules do not map",
            _about(part, index, grain=part.grain),
        )
    up, lo, sx, dx = _bands(part, index, rules.edge_mapping)
    return Row(
        material_code=part.material_code,
        length_mm=length_mm,
        width_mm=width_mm,
        quantity=part.quantity,
        grain=grain,
        description=f"{part.part_type}_{part.id}_TRIM_{hundredths(trim_mm)}",
        edge_up_mm=up,
        edge_lo_mm=lo,
        edge_sx_mm=sx,
        edge_dx_mm=dx,
        second_description=part.iidesc or part.delik_kodu or "",
        description_1=part.desc1 or "",
    )


def _bands(part: Part, index: int, known: Mapping[str, Decimal | None]) -> _Bands:
    """The four bands in mm. A back never has one, whatever the order says."""
    if part.part_type == "ARKALIK":
        return None, None, None, None

    def band(field: str) -> Decimal | None:
        name = getattr(part, field)
        name = NO_BAND if name is None else name  # an empty text is no way to say nothing
        if name not in known:
            raise OrderProblem(
                OptiCode.EDGE_MAPPING_UNKNOWN,
                f"part {part.id}, {field}: the band {shown(name)} is not in the rules",
                _about(part, index, edge=field, band=name),
            )
        return known[name]

    up, lo, sx, dx = map(band, _EDGES)
    return up, lo, sx, dx


def _asks_for_bands(part: Part) -> bool:
    return any(getattr(part, field) not in {None, "", NO_BAND} for field in _EDGES)


def _about(part: Part, index: int, **more: Any) -> dict[str, Any]:
    return {"part_id": part.id, "part_index": index, **more}
