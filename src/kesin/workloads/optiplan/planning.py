"""Orders planned here and now, without a queue: what `kesin optiplan optimize` does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kesin.foundation.problems import Invalid
from kesin.workloads.optiplan.names import plain_letters
from kesin.workloads.optiplan.optimizer import (
    Conditions,
    Figures,
    Plan,
    Unplannable,
    figures,
    optimise,
    read_batch,
    write_plans,
)
from kesin.workloads.optiplan.optimizer.words import Language
from kesin.workloads.optiplan.order_files import content, order_in
from kesin.workloads.optiplan.orders import ListDefaults
from kesin.workloads.optiplan.rules import Rules, rules_json
from kesin.workloads.optiplan.sheet_rows import Unreadable, read_sheets
from kesin.workloads.optiplan.template import SHEET, check_template
from kesin.workloads.optiplan.transform import transform
from kesin.workloads.optiplan.workbook import write_batches
from kesin.workloads.optiplan.workshop import Workshop

NOBODY: Final = ""  # the phone of an order that is only planned


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and what it comes to."""

    batch: str
    plan: Plan
    sums: Figures

    def record(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "material": self.plan.demand.material,
            "pieces": self.plan.demand.pieces,
            "boards": self.sums.boards,
            "least_boards": self.sums.least_boards,
            "yield_percent": round(100 * self.sums.yield_share, 1),
            "offcut_m2": round(self.sums.offcut_m2, 2),
            "cut_metres": round(self.sums.cut_metres, 1),
            "band_metres": {name: round(metres, 2) for name, metres in self.sums.band_metres},
        }


def planned(
    workshop: Workshop,
    files: Sequence[Path],
    out: Path,
    *,
    color: str | None = None,
    language: Language = "en",
) -> list[Planned]:
    """Plan import files or whole orders, and write XML, SVG and PDF for each batch.

    Raises Invalid with what cannot be cut; then nothing of that file is written.
    """
    rules = workshop.rules()
    conditions = Conditions.of_rules(rules_json(rules))
    made: list[Planned] = []
    stems: set[str] = set()
    try:
        with tempfile.TemporaryDirectory(prefix="kesin-optiplan-") as folder:
            for file in files:
                batches: dict[str, list[Plan]] = {}
                for batch in _batches(file, Path(folder), workshop, rules, color):
                    _add_stem(stems, batch.stem, file)
                    batches[batch.stem] = [optimise(one) for one in read_batch(batch, conditions)]
                for stem, plans in batches.items():
                    write_plans(out, stem, plans, language)
                    made += [Planned(stem, plan, figures(plan)) for plan in plans]
    except Unplannable as problem:
        raise Invalid(str(problem)) from None
    return made


def _add_stem(stems: set[str], stem: str, file: Path) -> None:
    """Two of one name would be one: the second would be planned and written as the first."""
    if stem in stems:
        raise Unplannable(f"{file}: another file of this name was given too")
    stems.add(stem)


def _batches(
    file: Path, folder: Path, workshop: Workshop, rules: Rules, color: str | None
) -> Iterator[Path]:
    """The import file itself; of an order, those it would be written into."""
    if _is_import_file(file):
        yield file
        return
    payload = order_in(
        file, order_id=None, phone=NOBODY, rules=rules, defaults=ListDefaults(color=color)
    )
    plate = payload.plate_size or rules.default_plate_size
    if plate is None:
        raise Invalid(f"{file} names no plate size and the rules have no defaultPlateSize")
    yield from write_batches(
        folder,
        plain_letters(file.stem),
        transform(payload, rules).batches,
        check_template(workshop.paths().template),
        plate=plate,
        kerf_mm=rules.kerf_mm,
    )


def _is_import_file(file: Path) -> bool:
    if file.suffix.lower() != ".xlsx":
        return False
    try:
        return SHEET in (one.name for one in read_sheets(content(file)))
    except Unreadable:
        return False
