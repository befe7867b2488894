"""The settings of a plan, in ``<stem>.json`` beside the workbook, which has no place for them."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from kesin.foundation.messages import MessageError
from kesin.workloads.optiplan.orders.numbers import format_number, round_to_hundredths
from kesin.workloads.optiplan.orders.payload import EffortName, Name, Payload, PlateSideMm, StrictModel, ThicknessMm
from kesin.workloads.optiplan.workshop.rules import Rules
from kesin.workloads.optiplan.workshop.saw_rules import BoardRules, KerfMm, Price, RateRules, SawSettings, SmallMm


class RackOffcut(StrictModel):
    """An offcut that a plan may use; its length runs along the grain."""

    id: Name
    material: Name
    length_mm: PlateSideMm
    width_mm: PlateSideMm
    trim_needed: bool = False  # its edges are sawn already
    price: Price = Decimal(0)


class PlanSettings(StrictModel):
    """Everything but the parts: of one batch, or the defaults for batches without a file."""

    plate_w_mm: PlateSideMm | None = None
    plate_h_mm: PlateSideMm | None = None
    trim_mm: SmallMm | None = None  # unless the saw has its own trims
    trim_by_thickness: Mapping[str, SmallMm] = Field(default_factory=dict)
    kerf_mm: KerfMm = Decimal(4)  # of a saw that has none
    offcut_length_mm: PlateSideMm = Decimal(400)
    offcut_width_mm: PlateSideMm = Decimal(150)
    thickness_mm: ThicknessMm | None = None
    saw: SawSettings | None = None  # a file of an older version has none, and any number of stages
    boards: Annotated[tuple[BoardRules, ...], Field(strict=False)] = ()
    rates: RateRules = RateRules()  # its bands have their names in the plan
    effort: EffortName = "normal"
    rack: Annotated[tuple[RackOffcut, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.plate_w_mm is None) != (self.plate_h_mm is None):
            raise MessageError("plate_w_mm and plate_h_mm must be given together")
        ids = [offcut.id for offcut in self.rack]
        if twice := next((id_ for id_ in ids if ids.count(id_) > 1), None):
            raise MessageError("the rack lists the offcut %(id)s twice", id=twice)
        return self

    @classmethod
    def of(cls, rules: Rules) -> Self:
        """Return the defaults of the rules."""
        plate = rules.default_plate_size
        bands = {
            band_name(thickness): rules.rates.bands[name]
            for name, thickness in rules.edge_mapping.items()
            if thickness is not None and name in rules.rates.bands
        }
        return cls(
            plate_w_mm=plate.width_mm if plate else None,
            plate_h_mm=plate.height_mm if plate else None,
            trim_by_thickness=rules.trim_by_thickness,
            kerf_mm=rules.kerf_mm,
            saw=rules.saw(),
            boards=rules.boards,
            rates=rules.rates.model_copy(update={"bands": bands}),
            effort=rules.effort,
        )

    @classmethod
    def of_order(cls, rules: Rules, order: Payload) -> Self:
        """Return the defaults with the choices of an order; its own board is the only one."""
        settings, own = cls.of(rules.for_order(order)), order.plate_size
        if own is None:
            return settings
        plate = {"plate_w_mm": own.width_mm, "plate_h_mm": own.height_mm}
        return settings.model_copy(update={**plate, "boards": ()})

    @classmethod
    def for_batch(cls, rules: Rules, order: Payload, thickness_mm: Decimal, trim_mm: Decimal) -> Self:
        """Return the settings of a batch of an order; the rack's offcuts are added later."""
        settings = cls.of_order(rules, order)
        boards = tuple(each for each in settings.boards if each.thickness_mm == thickness_mm)
        batch = {"thickness_mm": thickness_mm, "trim_mm": trim_mm, "boards": boards}
        return settings.model_copy(update=batch)

    def as_json(self) -> dict[str, Any]:
        """Convert to the content of a batch's file, without what it makes no use of."""
        content = self.model_dump(mode="json", exclude_none=True)
        content.get("saw", {}).pop("machine_files", None)
        del content["kerf_mm"], content["trim_by_thickness"]
        return content

    def boards_of(self, material: str, thickness_mm: Decimal) -> list[BoardRules]:
        """Return the boards in which a material is bought; 0 is any thickness."""
        boards = [board for board in self.boards if board.material == material]
        return [board for board in boards if thickness_mm in {0, board.thickness_mm}]

    def merged_into(self, defaults: Self) -> Self:
        """Return the defaults with what is set here, which also replaces what depends on it."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        if "plate_w_mm" in given:
            given = {"boards": (), **given}
        if "kerf_mm" in given and defaults.saw:
            no_kerf = {"kerf_rip_mm": None, "kerf_cross_mm": None}
            given = {"saw": defaults.saw.model_copy(update=no_kerf), **given}
        return defaults.model_copy(update=given)


def band_name(thickness_mm: Decimal) -> str:
    """Return what a plan calls a band: an import file has only its thickness."""
    return f"{format_number(round_to_hundredths(thickness_mm))} mm"
