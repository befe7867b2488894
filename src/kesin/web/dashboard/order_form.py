"""A cutting order typed by hand: rows of parts as people write them, and the order they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kesin.web.dashboard.schema_form import number_in, row_number

MOST_ROWS: Final = 200  # typed by hand; a longer order comes as a file
TEXTS: Final = ("material_code", "color")
NUMBERS: Final = ("thickness_mm", "length_cm", "width_cm", "quantity")
EDGES: Final = ("edge_up", "edge_lo", "edge_sx", "edge_dx")
LINES: Final = ("delik_kodu", "iidesc", "desc1")
COLUMNS: Final = ("id", "part_type", *TEXTS, *NUMBERS, "grain", *EDGES, *LINES)
KEPT: Final = ("part_type", *TEXTS, "thickness_mm", "grain")  # a new row is like the one above
HEADS: Final = ("order_id", "customer_phone", "customer_snapshot_name", "opti_mode")
PLATE: Final = ("width_mm", "height_mm")
_FIRST: Final = {"id": "P1", "part_type": "GOVDE", "thickness_mm": "18", "grain": "0"}


@dataclass(frozen=True, slots=True)
class OrderForm:
    """What was typed, text throughout."""

    heads: dict[str, str] = field(default_factory=dict)
    rows: tuple[dict[str, str], ...] = ()

    @classmethod
    def empty(cls) -> OrderForm:
        """With one row to begin with."""
        return cls({}, (_filled(_FIRST),))

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> OrderForm:
        """As a browser sends it: ``parts/0/length_cm``."""
        found: dict[int, dict[str, str]] = {}
        for name, text in fields.items():
            steps = name.split("/")
            if len(steps) == 3 and steps[0] == "parts" and steps[2] in COLUMNS:  # noqa: PLR2004
                number = row_number(steps[1])
                if number is not None:
                    found.setdefault(number, {})[steps[2]] = text
        rows = tuple(_filled(found[number]) for number in sorted(found))[:MOST_ROWS]
        heads = {name: fields.get(name, "") for name in (*HEADS, *PLATE)}
        return cls(heads, rows)

    def added(self) -> OrderForm:
        """With one more row, of the same board as the last."""
        if len(self.rows) >= MOST_ROWS:
            return self
        last = self.rows[-1] if self.rows else _filled(_FIRST)
        new = _filled({name: last[name] for name in KEPT} | {"id": f"P{len(self.rows) + 1}"})
        return OrderForm(self.heads, (*self.rows, new))

    def removed(self, number: int) -> OrderForm:
        """Without this row."""
        rows = tuple(row for n, row in enumerate(self.rows) if n != number)
        return OrderForm(self.heads, rows)

    def body(self) -> dict[str, Any]:
        """The order as it would be sent.

        What was left empty is left out; what is no number stays as it was typed, to be told.
        """
        told: dict[str, Any] = {
            "order_id": self.heads.get("order_id", "").strip(),
            "customer_phone": self.heads.get("customer_phone", "").strip(),
            "parts": [_part(row) for row in self.rows],
        }
        for name in ("customer_snapshot_name", "opti_mode"):
            if self.heads.get(name, "").strip():
                told[name] = self.heads[name].strip()
        plate = {name: number_in(self.heads.get(name, "").strip()) for name in PLATE}
        if any(value != "" for value in plate.values()):
            told["plate_size"] = plate
        return told


def _filled(row: Mapping[str, str]) -> dict[str, str]:
    return {name: row.get(name, "") for name in COLUMNS}


def _part(row: Mapping[str, str]) -> dict[str, Any]:
    told: dict[str, Any] = {name: row[name].strip() for name in ("id", "part_type", *TEXTS)}
    told |= {name: number_in(row[name].strip()) for name in (*NUMBERS, "grain")}
    told |= {name: row[name].strip() for name in (*EDGES, *LINES) if row[name].strip()}
    return told
