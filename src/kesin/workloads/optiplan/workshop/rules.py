"""Rules of ``rules.json``: unknown and missing keys are rejected, as they would be cut in wood."""

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from kesin.foundation.messages import Message, MessageError
from kesin.workloads.optiplan.orders import numbers, payload
from kesin.workloads.optiplan.orders.numbers import InBounds
from kesin.workloads.optiplan.orders.payload import EffortName, Name, OptiMode, Payload, PlateSize, StrictModel
from kesin.workloads.optiplan.workshop import json_file
from kesin.workloads.optiplan.workshop.saw_rules import (
    SHIPPED_PROFILES,
    BoardRules,
    LabelRules,
    RackRules,
    RateRules,
    SawProfileRules,
    SawSettings,
)

NO_BAND: Final = "Bant Yok"
MAX_RETRIES: Final = 20  # every retry enlarges the proof that each order ends

_MM_IN_CM: Final = 10
_USUAL_TRIM_MM: Final = 50  # a larger trim is warned about

_Mm = Annotated[Decimal, InBounds("0.01", "1000")]
_Minutes = Annotated[Decimal, InBounds("0.01", "1440")]


def _thickness_keys(trims: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Normalise the keys: ``18.0`` and ``18`` are the same thickness."""
    by_thickness: dict[str, Decimal] = {}
    for text, trim in trims.items():
        try:
            key = numbers.format_number(numbers.parse_number(Decimal(text)))
        except (InvalidOperation, ValueError):
            raise MessageError(
                "the thickness %(thickness)s is not a number", thickness=numbers.format_value(text)
            ) from None
        if key in by_thickness:
            raise MessageError("the thickness %(thickness)s occurs twice", thickness=key)
        by_thickness[key] = trim
    return by_thickness


def _check_no_band(bands: Mapping[str, Decimal | None]) -> Mapping[str, Decimal | None]:
    if bands.get(NO_BAND, 0) is not None:
        raise MessageError("must map %(band)s, which means no band, to null", band=repr(NO_BAND))
    return bands


class MergePolicy(StrictModel):
    """Whether equal parts may be merged; stored for the workshop, nothing merges automatically."""

    default_disabled: bool = Field(alias="defaultDisabled")
    requires_operator_approval: bool = Field(alias="requiresOperatorApproval")


class Timeouts(StrictModel):
    """How long the optimiser and the machine may take."""

    opti_xml_minutes: _Minutes = Field(alias="optiXmlMinutes")
    osi_ack_minutes: _Minutes = Field(alias="osiAckMinutes")


class Rules(StrictModel):
    """All rules. Look up trims and grains with the methods, which normalise the keys."""

    cm_to_mm_multiplier: Annotated[Decimal, InBounds("1", "100")]
    trim_by_thickness: Annotated[dict[str, _Mm], Field(max_length=1_000), AfterValidator(_thickness_keys)] = Field(
        alias="trimByThickness"
    )
    backing_thicknesses: Annotated[tuple[_Mm, ...], Field(max_length=100, strict=False)] = Field(
        alias="backingThicknesses"
    )
    edge_mapping: Annotated[dict[Name, _Mm | None], Field(max_length=1_000), AfterValidator(_check_no_band)] = Field(
        alias="edgeMapping"
    )
    grain_mapping: dict[Literal["0", "1", "2", "3"], Annotated[int, InBounds("0", "3")]] = Field(alias="grainMapping")
    merge_policy: MergePolicy = Field(alias="mergePolicy")
    default_plate_size: PlateSize | None = Field(None, alias="defaultPlateSize")
    retry_count_max: Annotated[int, InBounds("0", str(MAX_RETRIES))]
    retry_backoff_minutes: Annotated[tuple[_Minutes, ...], Field(min_length=1, max_length=100, strict=False)]
    opti_mode_default: OptiMode | None = Field(None, alias="optiModeDefault")
    timeouts: Timeouts
    ack_mode: Literal["file_move"] = Field(alias="ackMode")
    kerf_mm: Annotated[Decimal, InBounds("0", "20")] = Decimal(4)
    materials: Annotated[tuple[Name, ...], Field(max_length=1_000, strict=False)] = ()  # none: any
    language: Literal["en", "tr"] = "en"  # of the drawings beside the XML
    saw_profiles: Annotated[dict[Name, SawProfileRules], Field(min_length=1, max_length=20)] = Field(
        default_factory=SHIPPED_PROFILES.copy
    )
    saw_profile: Name = "beam saw"  # of orders that name none
    effort: EffortName = "normal"
    boards: Annotated[tuple[BoardRules, ...], Field(max_length=500, strict=False)] = ()
    rates: RateRules = RateRules()
    rack: RackRules = RackRules()
    labels: LabelRules = LabelRules()

    @model_validator(mode="after")
    def _check_profile(self) -> Self:
        if self.saw_profile not in self.saw_profiles:
            known, given = ", ".join(self.saw_profiles), numbers.format_value(self.saw_profile)
            why = "saw_profile must be one of saw_profiles (%(known)s), got %(given)s"
            raise MessageError(why, known=known, given=given)
        for name in self.saw_profiles:
            saw = self.saw(name)
            kerfs = (saw.kerf_cross_mm, saw.kerf_cross_mm, saw.kerf_rip_mm, saw.kerf_rip_mm)
            for (side, trim), kerf in zip(saw.trims or (), kerfs, strict=False):
                if 0 < trim < (kerf or 0):
                    why = "saw_profiles.%(name)s.trims.%(side)s must include the kerf, %(kerf)s mm"
                    raise MessageError(why, name=name, side=side, kerf=kerf)
        return self

    @model_validator(mode="after")
    def _check_boards(self) -> Self:
        known: set[tuple[str, Decimal, str]] = set()
        for number, board in enumerate(self.boards):
            code = (board.material, board.thickness_mm, board.code)
            if code in known:
                why = "boards[%(n)s].code: %(given)s occurs twice for its material and thickness"
                raise MessageError(why, n=number, given=numbers.format_value(board.code))
            if self.materials and board.material not in self.materials:
                why = "boards[%(n)s].material: %(given)s is not in materials"
                raise MessageError(why, n=number, given=numbers.format_value(board.material))
            known.add(code)
        return self

    @model_validator(mode="after")
    def _check_band_rates(self) -> Self:
        prices: dict[Decimal, Decimal] = {}
        for name, price in self.rates.bands.items():
            given, thickness = numbers.format_value(name), self.edge_mapping.get(name)
            if thickness is None:
                why = "rates.bands: %(given)s is not a band with a thickness in edgeMapping"
                raise MessageError(why, given=given)
            if prices.setdefault(thickness, price) != price:
                why = "rates.bands: %(given)s must have the same price as the other band of its thickness"
                raise MessageError(why, given=given)
        return self

    def mode(self, requested: OptiMode | None, *, built_in_optimiser: bool) -> OptiMode:
        """Choose the mode: as requested, else the rules' default, else by the optimiser in use."""
        return requested or self.opti_mode_default or ("A" if built_in_optimiser else "C")

    def trim_mm(self, thickness_mm: Decimal) -> Decimal | None:
        """Return the trim of a plate's sides; None without a rule."""
        return self.trim_by_thickness.get(numbers.format_number(thickness_mm))

    def wrong_choice(self, order: Payload) -> payload.FieldProblem | None:
        """Return the problem of a choice that the rules do not offer to this order."""
        of_parts = {(part.material_code, part.thickness_mm) for part in order.parts} if not order.plate_size else ()
        boards = [each.code for each in self.boards if (each.material, each.thickness_mm) in of_parts]
        for name, where, known in (
            ("saw_profile", "saw_profiles in the rules", self.saw_profiles),
            ("board", "the boards in the rules for its materials, without a plate_size", boards),
        ):
            if (given := getattr(order, name)) not in {None, *known}:
                why = "must be one of %(where)s (%(known)s), got %(given)s"
                names, shown = ", ".join(known) or "–", numbers.format_value(given)
                return payload.FieldProblem((name,), Message(why, where=Message(where), known=names, given=shown))
        return None

    def for_order(self, order: Payload) -> Self:
        """Return the rules with an order's choices; raises OrderProblem for one that they do not offer."""
        if problem := self.wrong_choice(order):
            raise problem.as_problem()
        chosen_of = {(each.material, each.thickness_mm) for each in self.boards if each.code == order.board}
        boards = tuple(
            each
            for each in self.boards
            if each.code == order.board or (each.material, each.thickness_mm) not in chosen_of
        )
        rack = None if order.use_rack is None else RackRules(use=order.use_rack)
        chosen = {"effort": order.effort, "saw_profile": order.saw_profile, "rack": rack, "boards": boards}
        return self.model_copy(update={key: value for key, value in chosen.items() if value})

    def saw(self, name: str = "") -> SawSettings:
        """Return a profile, or the one in use, with the kerf of the rules where it has none."""
        profile = self.saw_profiles[name := name or self.saw_profile]
        kerfs = {"kerf_rip_mm": profile.kerf_rip_mm, "kerf_cross_mm": profile.kerf_cross_mm}
        kerfs = {key: self.kerf_mm if kerf is None else kerf for key, kerf in kerfs.items()}
        return SawSettings(name=name, **{**dict(profile), **kerfs})

    def grain(self, requested: int) -> int | None:
        """Return OptiPlanning's number for a grain; None without a rule."""
        return next((to for key, to in self.grain_mapping.items() if key == str(requested)), None)


def rule_warnings(rules: Rules) -> list[str]:
    """Return the values that are allowed, but probably a mistake."""
    warnings: list[str] = []
    if "kerf_mm" not in rules.model_fields_set:
        what = "kerf_mm is missing: a kerf of %(kerf)s mm is assumed"
        warnings.append(Message(what, kerf=rules.kerf_mm))
    if rules.cm_to_mm_multiplier != _MM_IN_CM:
        what = "cm_to_mm_multiplier is %(n)s: 1 cm is 10 mm, so every part will be the wrong size"
        warnings.append(Message(what, n=numbers.format_number(rules.cm_to_mm_multiplier)))
    what = "trimByThickness: %(thickness)s mm boards lose %(trim)s mm on each side"
    warnings += [
        Message(what, thickness=thickness, trim=numbers.format_number(trim))
        for thickness, trim in rules.trim_by_thickness.items()
        if trim > _USUAL_TRIM_MM
    ]
    return warnings + list(_board_warnings(rules))


def _board_warnings(rules: Rules) -> Iterator[str]:
    priced = {(board.material, board.thickness_mm) for board in rules.boards if board.price}
    for number, board in enumerate(rules.boards):
        if board.length_mm < board.width_mm:
            what = "boards[%(n)s]: length_mm is less than width_mm, but the grain runs along length_mm"
            yield Message(what, n=number)
        if not board.price and (board.material, board.thickness_mm) in priced:
            what = "boards[%(n)s] has no price, so prices are ignored for its material"
            yield Message(what, n=number)
        saw, length, width = rules.saw(), board.length_mm, board.width_mm
        halves = (length / 2, width), (length, width / 2)
        if not any(saw.can_free(half, (length, width), (length, width)) for half in halves):
            what = "boards[%(n)s]: the saw %(saw)s cannot make a first cut through it: %(limits)s"
            yield Message(what, n=number, saw=saw.name, limits=saw.limits)


def default_rules() -> Rules:
    """Return the default rules. The mode is open: A with the built-in optimiser, else C."""
    return read_rules(json.loads(json_file.read_shipped("rules.json")))


def read_rules(body: Any) -> Rules:
    """Validate rules; raises OrderProblem with every invalid key."""
    return payload.validate_model(Rules, body)


def rules_json(rules: Rules) -> dict[str, Any]:
    body = rules.model_dump(mode="json", by_alias=True)
    if rules.default_plate_size is None:
        del body["defaultPlateSize"]
    return body


def load_rules(file: Path) -> Rules:
    """Load the rules in force. A missing file is created with the defaults."""
    if not file.exists():
        save_rules(file, default_rules())
    return json_file.read_settings_file(file, read_rules)


def save_rules(file: Path, rules: Rules) -> None:
    json_file.write_json_file(file, rules_json(rules))
