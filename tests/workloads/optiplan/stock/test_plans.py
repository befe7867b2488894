"""What a plan is offered from the rack, and what it may say that it uses."""

import json
from pathlib import Path
from typing import Any

from kesin.store.sqlite.store import SqliteStore
from kesin.store.transfer.copy_directory import copy_metadata
from kesin.workloads.optiplan.stock.offcut import Offcut, offcut_id
from kesin.workloads.optiplan.stock.plans import MAX_OFFERED, offer_offcuts, used_offcuts
from kesin.workloads.optiplan.stock.rack import Rack
from kesin.workloads.optiplan.workshop.plan_settings import PlanSettings
from kesin.workloads.optiplan.workshop.rules import Rules, default_rules
from tests.workloads.optiplan.offcut_bodies import BODY
from tests.workloads.optiplan.order_bodies import part, payload
from tests.workloads.optiplan.stock.racks import plan_with, put_offcut
from tests.workloads.optiplan.workbench import Workbench

RULES = default_rules()


def offcut(name: str, **other: Any) -> Offcut:
    times = {"created_at": 0, "changed_at": 0}
    return Offcut.model_validate({**BODY, "id": name, **times, **other})


def offered(
    folder: Path, *offcuts: Offcut, rules: Rules = RULES, parts: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """What the settings of the only batch offer."""
    file = folder / "batch.json"
    file.write_text('{"rack":[{"id":"old"}],"trim_mm":10}')
    order = payload(*(parts or [part()]))
    offer_offcuts(folder, order, rules, ["batch"], offcuts)
    settings = json.loads(file.read_text())
    assert settings["trim_mm"] == 10
    return list(settings.get("rack", []))


def test_only_offcuts_of_the_same_board_that_hold_a_part_are_offered(tmp_path: Path):
    fit = offcut("R1", color="BEYAZ", price=12.5, trim_needed=False)
    others = [
        offcut("R2", color="Meşe"),
        offcut("R3", thickness_mm=8),
        offcut("R4", material="MDF"),
        offcut("R5", length_mm=720),  # a part is 722 mm long
    ]
    [entry] = offered(tmp_path, *others, fit)
    assert entry == {
        "id": "R1",
        "material": "18MM 210*280",
        "length_mm": 900,
        "width_mm": 700,
        "trim_needed": False,
        "price": 12.5,
    }
    PlanSettings.model_validate({"rack": [entry]})


def test_the_largest_fifty_of_each_material_are_offered(tmp_path: Path):
    materials = ("18MM 210*280", "MDF")
    rack = [
        offcut(f"R{material}{number}", material=material, length_mm=800 + number)
        for material in materials
        for number in range(MAX_OFFERED + 5)
    ]
    found = offered(tmp_path, *rack, parts=[part(), part(material_code="MDF")])
    sizes = [entry["length_mm"] for entry in found]
    assert sizes == [*range(800 + MAX_OFFERED + 4, 804, -1)] * 2


def test_nothing_is_offered_of_a_material_that_the_rules_except(tmp_path: Path):
    rules = RULES.model_copy(update={"rack": RULES.rack.model_copy(update={"except_materials": ("MDF",)})})
    assert offered(tmp_path, offcut("R1"), rules=rules)
    assert offered(tmp_path, offcut("R1", material="MDF"), rules=rules, parts=[part(material_code="MDF")]) == []


def test_the_offcuts_of_a_plan_belong_to_its_batch_and_other_programs_use_none(tmp_path: Path):
    files = {"a": plan_with(["R1", "R2"]), "b": plan_with([]), "c": "<Solutions><x/></Solutions>"}
    for name, text in {**files, "d": files["a"][:-20]}.items():
        (tmp_path / f"{name}.xml").write_text(text)
    stems = ["a", "b", "c", "d"]

    def used(*names: str) -> dict[str, str] | None:
        return used_offcuts([tmp_path / f"{name}.xml" for name in names], stems)

    assert used("a", "b") == {"R1": "a", "R2": "a"}
    assert (used("b"), used("c"), used("d")) == ({}, None, None)


def test_an_id_is_short_and_depends_on_its_key_alone():
    assert offcut_id("a/1/1/1") == offcut_id("a/1/1/1")
    ids = {offcut_id(str(number)) for number in range(5_000)}
    assert len(ids) == 5_000
    assert not set("".join(ids)) & set("IO01-")


def test_a_copied_store_has_the_same_rack(bench: Workbench):
    free, used = put_offcut(bench.queue, "a"), put_offcut(bench.queue, "b")
    Rack(bench.queue).update(Rack(bench.queue).get(used), state="USED")
    copy = SqliteStore(":memory:")
    copy_metadata(bench.store, copy, "optiplan", without="worker:")
    rack = Rack(type(bench.queue)("optiplan", bench.queue.lifecycle, copy, clock=bench.clock))
    assert [rack.get(each) for each in (free, used)] == [Rack(bench.queue).get(each) for each in (free, used)]
    copy.close()
