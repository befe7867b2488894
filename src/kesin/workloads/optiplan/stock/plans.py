"""What plans take from the rack, and the new offcuts that they leave."""

import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.orders.payload import CuttingOrder, OrderPart, Payload
from kesin.workloads.optiplan.pipeline import shared_folder
from kesin.workloads.optiplan.pipeline.progress import OrderProgress, batch_stem
from kesin.workloads.optiplan.pipeline.solution import HARDENED_PARSER
from kesin.workloads.optiplan.stock.offcut import CANDIDATE, CENT, Offcut, OffcutSize, offcut_id
from kesin.workloads.optiplan.workshop.json_file import write_atomically
from kesin.workloads.optiplan.workshop.rules import Rules

MAX_OFFERED: Final = 50  # of one material
_SIDES: Final = ("length", "width")
_GENERATOR: Final = "Kesin"  # of the XML of the built-in optimiser


def offer_offcuts(folder: Path, order: Payload, rules: Rules, stems: Sequence[str], free: Sequence[Offcut]) -> None:
    """Write the offcuts that the optimiser may use into the settings of each batch."""
    for stem, parts in _parts_by_stem(order, stems).items():
        file = folder / f"{stem}.json"
        with shared_folder.translate_os_errors(file):
            settings = json.loads(file.read_bytes())
            offered = _offered(parts, rules, free)
            if offered != settings.pop("rack", []):
                rack = {"rack": offered} if offered else {}
                write_atomically(file, canonical_json({**settings, **rack}).encode())


def _offered(parts: Sequence[OrderPart], rules: Rules, free: Iterable[Offcut]) -> list[Any]:
    """Return the largest offcuts of each material that hold at least one of its parts."""
    first, mm = parts[0], rules.cm_to_mm_multiplier
    sides: dict[str, set[tuple[Decimal, Decimal]]] = {}
    for part in parts:
        sides.setdefault(part.material_code, set()).add((part.length_cm * mm, part.width_cm * mm))
    same = [each for each in free if each.color.casefold() == first.color.casefold()]
    fit = [each for each in same if each.thickness_mm == first.thickness_mm]
    offered: list[Any] = []
    for material in filter(rules.rack.serves, sides):
        own = (each for each in fit if each.material == material)
        usable = (each for each in own if any(each.holds(*pair) for pair in sides[material]))
        largest = sorted(usable, key=lambda each: (-each.area, each.id))[:MAX_OFFERED]
        offered += [each.model_dump(mode="json", include=CANDIDATE) for each in largest]
    return offered


def _parts_by_stem(order: Payload, stems: Sequence[str]) -> dict[str, list[OrderPart]]:
    """Return the parts of each batch, in the order in which the batches were written."""
    batches: dict[Any, list[OrderPart]] = {}
    for part in order.parts:
        batches.setdefault((part.part_type, part.color, part.thickness_mm), []).append(part)
    return dict(zip(stems, batches.values(), strict=True))


def used_offcuts(files: Iterable[Path], stems: Sequence[str]) -> dict[str, str] | None:
    """Return the offcuts in our plans, by id with their batch; None if no plan is ours."""
    plans = {file: layouts for file in files if (layouts := _read_layouts(file)) is not None}
    used = {
        layout.get("offcut"): batch_stem(stems, file.name)
        for file, layouts in plans.items()
        for layout in layouts
        if layout.get("offcut")
    }
    return used if plans else None


def made_offcuts(
    export_folder: Path, job: Job, progress: OrderProgress, batches: Iterable[str], now: int
) -> Iterator[Offcut]:
    """Yield the offcuts worth keeping that these batches of an order leave.

    Raises KeyError, ValueError or ArithmeticError if a plan is no longer as it was written.
    """
    parts = _parts_by_stem(CuttingOrder.from_job(job).payload, progress.stems)
    names = {batch_stem(progress.stems, name): name for name in progress.xml}
    for number, (stem, [part, *_]) in enumerate(parts.items(), 1):
        if stem not in batches:
            continue
        for layout in _read_layouts(export_folder / names[stem]) or ():
            board, times = layout.attrib, int(layout.attrib["times"])
            price = Decimal(board["price"]) / Decimal(board["length"]) / Decimal(board["width"])
            for rest, drop in enumerate(layout.findall("Drop"), 1):
                size = OffcutSize(**{f"{side}_mm": Decimal(drop.get(side)) for side in _SIDES})
                for copy in range(1, times + 1) if drop.get("reusable") == "1" else ():
                    made_key = f"{job.id}/{number}/{board['number']}/{copy}/{rest}"
                    yield Offcut(
                        id=offcut_id(made_key),
                        made_key=made_key,
                        made_by_job=job.id,
                        material=board["material"],
                        color=part.color,
                        thickness_mm=part.thickness_mm,
                        **dict(size),
                        trim_needed=False,
                        price=(price * size.area).quantize(CENT),
                        created_at=now,
                        changed_at=now,
                    )


def _read_layouts(file: Path) -> list[Any] | None:
    """Return the layouts of a plan; None if it is not ours, or cannot be read."""
    from lxml import etree  # type: ignore[import-untyped]

    try:
        data = shared_folder.read_shared_file(file)
        root = etree.fromstring(data, etree.XMLParser(**HARDENED_PARSER))
    except (shared_folder.UnusableFile, etree.LxmlError):
        return None
    is_ours = root.get("generator") == _GENERATOR
    return list(root.findall("Solution[@best='1']/Layout")) if is_ours else None
