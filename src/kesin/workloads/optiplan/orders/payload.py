"""An order as it comes in: parts in centimetres, checked once and strictly.

Whoever sends something we would ignore hears of it: an unknown key is refused by its name, a
boolean is no number, a number is no text. Everything has an upper bound.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.model import Job
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.numbers import (
    between,
    plain_json,
    shown,
    whole_between,
)

Mode = Literal["A", "B", "C"]
PartType = Literal["GOVDE", "ARKALIK"]

MAX_PARTS: Final = 1_000
MAX_TEXT: Final = 250
MAX_NAME: Final = 100
MAX_PHONE: Final = 40
MAX_QUANTITY: Final = 10_000
MAX_TOLD: Final = 100  # problems of one order; the message names fewer
_IN_MESSAGE: Final = 5
UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")

_WORDS: Final = {
    "missing": "is missing",
    "extra_forbidden": "is not a known field",
    "value_error": "{error}",
    "string_type": "must be text, got {given}",
    "string_too_long": "must be at most {max_length} characters long",
    "literal_error": "must be {expected}, got {given}",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
    "tuple_type": "must be a list, got {given}",
    "dict_type": "must be an object with fields, got {given}",
    "model_type": "must be an object with fields, got {given}",
    "bool_type": "must be true or false, got {given}",
}


def one_line(text: str) -> str:
    """A check: nothing that a database, a sheet or a list on a page would choke on."""
    found = UNFIT.search(text)
    if found:
        raise ValueError(f"must be one line of text, without the character {found.group()!a}")
    return text


def filled(text: str) -> str:
    """A check: more than blanks."""
    if not text.strip():
        raise ValueError("must not be empty")
    return text


Line = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(one_line)]
Name = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(one_line), AfterValidator(filled)]
Phone = Annotated[str, Field(max_length=MAX_PHONE), AfterValidator(one_line)]
PlateSideMm = Annotated[Decimal, BeforeValidator(between("1", "10000"))]
PartCm = Annotated[Decimal, BeforeValidator(between("0.01", "1000"))]
ThicknessMm = Annotated[Decimal, BeforeValidator(between("0.1", "1000"))]
Quantity = Annotated[int, BeforeValidator(whole_between(1, MAX_QUANTITY))]
Grain = Annotated[int, BeforeValidator(whole_between(0, 3))]
Edge = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(one_line)]


class Strict(BaseModel):
    """Nothing is converted, ignored or changed later."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PlateSize(Strict):
    """A board as it lies in the store."""

    width_mm: PlateSideMm
    height_mm: PlateSideMm


class Part(Strict):
    """One kind of panel. An edge is the name of a band; ``up`` and ``lo`` run along the length."""

    id: Name
    part_type: PartType
    material_code: Name
    length_cm: PartCm
    width_cm: PartCm
    quantity: Quantity
    grain: Grain
    color: Name
    thickness_mm: ThicknessMm
    edge_up: Edge | None = None
    edge_lo: Edge | None = None
    edge_sx: Edge | None = None
    edge_dx: Edge | None = None
    iidesc: Line | None = None
    desc1: Line | None = None
    delik_kodu: Line | None = None  # the drill code


def _counted(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    if not 1 <= len(parts) <= MAX_PARTS:
        raise ValueError(f"must hold 1…{MAX_PARTS} parts, got {len(parts)}")
    return parts


class Payload(Strict):
    """A whole order. The mode and the plate fall back to the rules; they are not filled in here."""

    order_id: Name
    customer_phone: Phone  # as written; nothing at all ends as a customer nobody knows
    customer_snapshot_name: Line | None = None
    opti_mode: Mode | None = None
    plate_size: PlateSize | None = None
    parts: Annotated[tuple[Part, ...], Field(strict=False), AfterValidator(_counted)]


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One field that is wrong: where it is, and what it should be."""

    path: tuple[str | int, ...]
    message: str

    @property
    def field(self) -> str:
        """The path as people write it, ``parts[3].length_cm``."""
        told = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in self.path)
        return told.removeprefix(".") or "order"


def read_payload(body: Any) -> Payload:
    """Check an order; raises OrderProblem with every field that is wrong."""
    read = checked(body)
    if isinstance(read, Payload):
        return read
    raise refused(read)


def checked(body: Any) -> Payload | list[FieldProblem]:
    """The order, or everything that is wrong with it."""
    if not isinstance(body, dict):
        return [FieldProblem((), f"must be an object with fields, got {shown(body)}")]
    if isinstance(body.get("parts"), list) and len(body["parts"]) > MAX_PARTS:
        count = len(body["parts"])  # before each of them is looked at
        return [FieldProblem(("parts",), f"must hold 1…{MAX_PARTS} parts, got {count}")]
    try:
        return Payload.model_validate(body)
    except ValidationError as problem:
        return list(field_problems(problem))


def field_problems(problem: ValidationError) -> Iterator[FieldProblem]:
    """What pydantic found, in our words."""
    errors = problem.errors(include_url=False)
    within = {error["loc"][:-1] for error in errors}
    for error in errors:
        if error["type"] == "too_short" and error["loc"] in within:
            continue  # pydantic does not count the wrong ones
        path = tuple(
            storable(shown(one).strip("'") if len(one) > MAX_NAME else one)
            if isinstance(one, str)
            else one
            for one in error["loc"]
        )
        yield FieldProblem(path, _words(error))


def refused(problems: Sequence[FieldProblem]) -> OrderProblem:
    """All of them as one: the first in the message, the others in the details."""
    told = "; ".join(f"{one.field}: {one.message}" for one in problems[:_IN_MESSAGE])
    more = len(problems) - _IN_MESSAGE
    return OrderProblem(
        OptiCode.VALIDATION,
        f"{told}; and {more} more" if more > 0 else told,
        {"fields": [{"field": one.field, "message": one.message} for one in problems[:MAX_TOLD]]},
    )


def payload_json(payload: Payload) -> dict[str, Any]:
    """As it is stored and shown; `read_payload` reads it back. What was not given is left out."""
    told: dict[str, Any] = plain_json(payload.model_dump(exclude_none=True))
    return told


def payload_hash(payload: Payload) -> str:
    """The same for the same order, however its keys and numbers were spelled."""
    return hashlib.sha256(canonical_json(payload_json(payload)).encode()).hexdigest()


def _words(error: ErrorDetails) -> str:
    given = shown(error["input"])
    words = _WORDS.get(error["type"])
    if words is None:
        return f"{error['msg'][:1].lower()}{error['msg'][1:]}, got {given}"
    return words.format(given=given, **error.get("ctx", {}))


@dataclass(frozen=True, slots=True)
class Order:
    """What a job carries. The mode was settled when the order came in."""

    payload: Payload
    mode: Mode
    revision: int = 1

    @property
    def key(self) -> str:
        """One job for the same payload, until a new revision is asked for."""
        return f"{payload_hash(self.payload)}:r{self.revision}"

    def as_json(self) -> dict[str, Any]:
        return {
            "order": payload_json(self.payload),
            "mode": self.mode,
            "revision": self.revision,
        }

    @classmethod
    def of(cls, job: Job) -> Self:
        """As the job keeps it; raises OrderProblem for what no order is."""
        kept = job.data if isinstance(job.data, dict) else {}
        return cls(read_payload(kept.get("order")), kept.get("mode", "C"), kept.get("revision", 1))
