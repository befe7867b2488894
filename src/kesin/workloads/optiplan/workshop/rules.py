"""The workshop's rules: trims, backs, bands, grain, deadlines; kept in ``rules.json``.

The keys are spelled as the workshop's existing files spell them. A file with an unknown key, or
without a known one, is refused by name: a rule that silently does not count would be cut in wood.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kesin.workloads.optiplan.orders.numbers import (
    between,
    exact,
    key_of,
    plain_json,
    shown,
    whole_between,
)
from kesin.workloads.optiplan.orders.payload import Mode, Name, PlateSize, Strict
from kesin.workloads.optiplan.workshop.json_file import (
    in_our_words,
    naming,
    read_json_file,
    write_json_file,
)

NO_BAND: Final = "Bant Yok"
MAX_RETRIES: Final = 20  # the proof that every order ends is made for each: more would take long

_Mm = Annotated[Decimal, BeforeValidator(between("0.01", "1000"))]
_Minutes = Annotated[Decimal, BeforeValidator(between("0.01", "1440"))]


def _thickness_keys(given: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """``18.0`` and ``18`` are one thickness."""
    keyed: dict[str, Decimal] = {}
    for text, trim in given.items():
        try:
            key = key_of(exact(Decimal(text)))
        except (InvalidOperation, ValueError):
            raise ValueError(f"the thickness {shown(text)} is no number") from None
        if key in keyed:
            raise ValueError(f"the thickness {key} is there twice")
        keyed[key] = trim
    return keyed


def _without_band(given: Mapping[str, Decimal | None]) -> Mapping[str, Decimal | None]:
    if given.get(NO_BAND, 0) is not None:
        raise ValueError(f"must map {NO_BAND!r}, which means no band, to null")
    return given


class MergePolicy(Strict):
    """Whether equal parts may be put together; kept for the workshop, nothing merges by itself."""

    default_disabled: bool = Field(alias="defaultDisabled")
    requires_operator_approval: bool = Field(alias="requiresOperatorApproval")


class Timeouts(Strict):
    """How long the optimiser and the machine may take."""

    opti_xml_minutes: _Minutes = Field(alias="optiXmlMinutes")
    osi_ack_minutes: _Minutes = Field(alias="osiAckMinutes")


class Rules(Strict):
    """All of them. Look up trims and bands with the methods, which know how keys are spelled."""

    cm_to_mm_multiplier: Annotated[Decimal, BeforeValidator(between("1", "100"))]
    trim_by_thickness: Annotated[
        dict[str, _Mm], Field(max_length=1_000), AfterValidator(_thickness_keys)
    ] = Field(alias="trimByThickness")
    backing_thicknesses: Annotated[tuple[_Mm, ...], Field(max_length=100, strict=False)] = Field(
        alias="backingThicknesses"
    )
    edge_mapping: Annotated[
        dict[Name, _Mm | None], Field(max_length=1_000), AfterValidator(_without_band)
    ] = Field(alias="edgeMapping")
    grain_mapping: dict[
        Literal["0", "1", "2", "3"], Annotated[int, BeforeValidator(whole_between(0, 3))]
    ] = Field(alias="grainMapping")
    merge_policy: MergePolicy = Field(alias="mergePolicy")
    default_plate_size: PlateSize | None = Field(None, alias="defaultPlateSize")
    retry_count_max: Annotated[int, BeforeValidator(whole_between(0, MAX_RETRIES))]
    retry_backoff_minutes: Annotated[
        tuple[_Minutes, ...], Field(min_length=1, max_length=100, strict=False)
    ]
    opti_mode_default: Mode | None = Field(None, alias="optiModeDefault")
    timeouts: Timeouts
    ack_mode: Literal["file_move"] = Field(alias="ackMode")
    kerf_mm: Annotated[Decimal, BeforeValidator(between("0", "20"))] = Decimal(4)

    def mode(self, asked: Mode | None, *, built_in_optimiser: bool) -> Mode:
        """How an order is optimised: as it asks, as the rules say, else by what is there."""
        return asked or self.opti_mode_default or ("A" if built_in_optimiser else "C")

    def trim_mm(self, thickness_mm: Decimal) -> Decimal | None:
        """What is cut off a plate's sides; None where no rule is."""
        return self.trim_by_thickness.get(key_of(thickness_mm))

    def grain(self, asked: int) -> int | None:
        """OptiPlanning's number for a grain; None where no rule is."""
        return next((to for key, to in self.grain_mapping.items() if key == str(asked)), None)

    def backs_may_be(self, thickness_mm: Decimal) -> bool:
        """Whether back panels of this thickness exist."""
        return thickness_mm in self.backing_thicknesses


def default_rules() -> Rules:
    """The workshop's own. The mode is left open: A with the built-in optimiser, else C."""
    return Rules.model_validate(
        {
            "cm_to_mm_multiplier": 10,
            "trimByThickness": {"18": 10, "3": 5, "4": 5, "5": 5, "8": 5},
            "backingThicknesses": [3, 4, 5, 8],
            "edgeMapping": {NO_BAND: None, "040": 0.4, "1mm": 1, "2mm": 2},
            "grainMapping": {"0": 0, "1": 1, "2": 2, "3": 3},
            "mergePolicy": {"defaultDisabled": True, "requiresOperatorApproval": True},
            "defaultPlateSize": {"width_mm": 2100, "height_mm": 2800},
            "retry_count_max": 3,
            "retry_backoff_minutes": [1, 3, 9],
            "optiModeDefault": None,
            "timeouts": {"optiXmlMinutes": 20, "osiAckMinutes": 5},
            "ackMode": "file_move",
            "kerf_mm": 4,
        }
    )


def read_rules(body: Any) -> Rules:
    """Check rules somebody sends; raises OrderProblem with every key that is wrong."""
    with in_our_words():
        return Rules.model_validate(body)


def rules_json(rules: Rules) -> dict[str, Any]:
    """As the file spells them."""
    told: dict[str, Any] = plain_json(rules.model_dump(by_alias=True))
    if rules.default_plate_size is None:
        del told["defaultPlateSize"]
    return told


def load_rules(file: Path) -> Rules:
    """The rules in force. Where there is no file yet, one with the defaults is made."""
    if not file.exists():
        save_rules(file, default_rules())
    given = read_json_file(file)
    with naming(file):
        return read_rules(given)


def save_rules(file: Path, rules: Rules) -> None:
    """Replace the file in one go."""
    write_json_file(file, rules_json(rules))
