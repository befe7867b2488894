"""Parts in cm become exact rows in mm; trims are described, OptiPlanning subtracts bands."""

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from kesin.foundation.text import json_number
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders import numbers
from kesin.workloads.optiplan.orders.payload import OrderPart, PartType, Payload
from kesin.workloads.optiplan.workshop.rules import NO_BAND, Rules

EDGES: Final = ("edge_up", "edge_lo", "edge_sx", "edge_dx")
ImportRow = tuple[str | int | Decimal | None, ...]  # a part, in the order of the template's tags


@dataclass(frozen=True, slots=True)
class ImportBatch:
    """The rows that are cut from the same boards: one part type, colour and thickness."""

    part_type: PartType
    color: str
    thickness_mm: Decimal
    trim_mm: Decimal
    rows: tuple[ImportRow, ...]


def transform_order(payload: Payload, rules: Rules) -> tuple[tuple[ImportBatch, ...], int]:
    """Return the batches and how many backs lost bands; OrderProblem for a missing rule."""
    sorted_rows: dict[tuple[PartType, str, Decimal], list[ImportRow]] = {}
    trims: dict[Decimal, Decimal] = {}
    resets = 0
    for index, part in enumerate(payload.parts):
        reader = _PartReader(part, index, rules)
        trims[part.thickness_mm] = trim_mm = reader.trim_mm()
        rows = sorted_rows.setdefault((part.part_type, part.color, part.thickness_mm), [])
        rows.append(reader.row(trim_mm))
        asks_for_bands = any(getattr(part, edge) not in {None, "", NO_BAND} for edge in EDGES)
        resets += part.part_type == "ARKALIK" and asks_for_bands
    batches = tuple(
        ImportBatch(part_type, color, thickness_mm, trims[thickness_mm], tuple(batch))
        for (part_type, color, thickness_mm), batch in sorted_rows.items()
    )
    return batches, resets


@dataclass(frozen=True, slots=True)
class _PartReader:
    """Converts a part; its methods raise OrderProblem for a missing rule."""

    part: OrderPart
    index: int
    rules: Rules

    def trim_mm(self) -> Decimal:
        backs, own = self.rules.backing_thicknesses, self.part.thickness_mm
        details, thickness = {"thickness_mm": json_number(own)}, numbers.format_number(own)
        if self.part.part_type == "ARKALIK" and own not in backs:
            why = "part %(part)s is a back and %(thickness)s mm thick; allowed for backs: %(known)s"
            known = ", ".join(map(numbers.format_number, backs)) or "none"
            code = OptiCode.BACKING_THICKNESS_UNKNOWN
            raise self._problem(code, why, details, thickness=thickness, known=known)
        trim_mm = self.rules.trim_mm(own)
        if trim_mm is None:
            why = "part %(part)s is %(thickness)s mm thick, and no trim is set for that thickness"
            raise self._problem(OptiCode.TRIM_RULE_MISSING, why, details, thickness=thickness)
        return trim_mm

    def row(self, trim_mm: Decimal) -> ImportRow:
        part, cm_to_mm = self.part, self.rules.cm_to_mm_multiplier
        rounded = numbers.round_to_hundredths
        grain = self.rules.grain(part.grain)
        if grain is None:
            why = "part %(part)s has the grain %(grain)s, which is not in the rules"
            details = {"grain": part.grain}
            raise self._problem(OptiCode.INVALID_GRAIN, why, details, grain=part.grain)
        return (
            part.material_code,
            rounded(part.length_cm * cm_to_mm),
            rounded(part.width_cm * cm_to_mm),
            part.quantity,
            grain,
            f"{part.part_type}_{part.id}_TRIM_{rounded(trim_mm)}",
            *map(self._band_mm, EDGES),
            part.iidesc or part.delik_kodu or None,
            part.desc1 or None,
        )

    def _band_mm(self, edge: str) -> Decimal | None:
        """Return the band of an edge. A back never has bands, whatever the order says."""
        if self.part.part_type == "ARKALIK":
            return None
        name = getattr(self.part, edge)
        name = NO_BAND if name is None else name  # an empty text is not the same
        if name not in self.rules.edge_mapping:
            why = "part %(part)s, %(edge)s: the band %(band)s is not in the rules"
            details, band = {"edge": edge, "band": name}, numbers.format_value(name)
            raise self._problem(OptiCode.EDGE_MAPPING_UNKNOWN, why, details, edge=edge, band=band)
        return self.rules.edge_mapping[name]

    def _problem(self, code: OptiCode, message: str, details: dict[str, Any], **values: object) -> OrderProblem:
        place = {"part_id": self.part.id, "part_index": self.index}
        return OrderProblem(code, message, place | details, part=self.part.id, **values)
