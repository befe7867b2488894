"""The order payload, in centimetres: bounded, strict in types, unknown keys rejected by name."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from kesin.engine.access.masking import MASK
from kesin.foundation.messages import Message, MessageError, join_messages
from kesin.foundation.text import canonical_json, storable
from kesin.lifecycle.model import Job
from kesin.store.search import field_of
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.numbers import InBounds, format_value

ModelT = TypeVar("ModelT", bound=BaseModel)
OptiMode = Literal["A", "B", "C"]
PartType = Literal["GOVDE", "ARKALIK"]
EffortName = Literal["quick", "normal", "thorough"]

MAX_PARTS: Final = 1_000
MAX_TEXT: Final = 250
MAX_NAME: Final = 100
MAX_PHONE: Final = 40
MAX_QUANTITY: Final = 10_000
MAX_REPORTED_PROBLEMS: Final = 100  # of one order, in the details; the message names fewer
_MAX_IN_MESSAGE: Final = 5
UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")

_MESSAGES: Final = {
    "missing": "is missing",
    "extra_forbidden": "is not a known field",
    "string_type": "must be text, got %(given)s",
    "string_too_long": "must be at most %(max_length)s characters long",
    "literal_error": "must be %(expected)s, got %(given)s",
    "too_short": "must have at least %(min_length)s items",
    "too_long": "must have at most %(max_length)s items",
    "tuple_type": "must be a list, got %(given)s",
    "dict_type": "must be an object with fields, got %(given)s",
    "model_type": "must be an object with fields, got %(given)s",
    "bool_type": "must be true or false, got %(given)s",
}


def check_one_line(text: str) -> str:
    """Validate that the text has no control characters and no line breaks."""
    if match := UNPRINTABLE.search(text):
        raise MessageError("must be one line of text, without the character %(sign)s", sign=ascii(match.group()))
    return text


def check_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


TextLine = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(check_one_line)]
Name = Annotated[
    str,
    Field(max_length=MAX_NAME, json_schema_extra={"minLength": 1}),
    AfterValidator(check_one_line),
    AfterValidator(check_not_blank),
]
Phone = Annotated[str, Field(max_length=MAX_PHONE), AfterValidator(check_one_line)]
PlateSideMm = Annotated[Decimal, InBounds("1", "10000")]
PartCm = Annotated[Decimal, InBounds("0.01", "1000")]
ThicknessMm = Annotated[Decimal, InBounds("0.1", "1000")]
Quantity = Annotated[int, InBounds("1", str(MAX_QUANTITY))]
Grain = Annotated[int, InBounds("0", "3")]
Edge = Annotated[str, Field(max_length=MAX_NAME), AfterValidator(check_one_line)]


class StrictModel(BaseModel):
    """A frozen model that converts nothing and ignores nothing."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PlateSize(StrictModel):
    """The size of a full board."""

    width_mm: PlateSideMm
    height_mm: PlateSideMm


class OrderPart(StrictModel):
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
    iidesc: TextLine | None = None
    desc1: TextLine | None = None
    delik_kodu: TextLine | None = None  # the drill code


class Payload(StrictModel):
    """A whole order. The rules supply what it leaves out; they are not filled in here."""

    order_id: Name
    customer_phone: Phone  # as written; an empty phone matches no customer
    customer_snapshot_name: TextLine | None = None
    opti_mode: OptiMode | None = None
    plate_size: PlateSize | None = None
    effort: EffortName | None = None
    saw_profile: Name | None = None
    use_rack: bool | None = None
    board: Name | None = None  # the only board in the rules that its material is cut from
    parts: Annotated[  # `validate_payload` counts them
        tuple[OrderPart, ...], Field(strict=False, json_schema_extra={"minItems": 1, "maxItems": MAX_PARTS})
    ]


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """An invalid field: its path and what it should be."""

    path: tuple[str | int, ...]
    message: str

    @property
    def field(self) -> str:
        """The path as text, ``parts[3].length_cm``."""
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path)
        return path.removeprefix(".") or "order"

    @property
    def full_message(self) -> Message:
        """The message with the field before it."""
        return Message("%(field)s: %(problem)s", field=self.field, problem=Message(self.message))

    def as_problem(self) -> OrderProblem:
        """The refusal of an order for this field alone."""
        return validation_problem([self])


def read_payload(body: Any) -> Payload:
    """Validate an order; raises OrderProblem with every invalid field."""
    result = validate_payload(body)
    if isinstance(result, Payload):
        return result
    raise validation_problem(result)


def validate_payload(body: Any) -> Payload | list[FieldProblem]:
    """Validate an order; returns it or every invalid field."""
    if not isinstance(body, dict):
        return [FieldProblem((), Message(_MESSAGES["model_type"], given=format_value(body)))]
    count = len(body["parts"]) if isinstance(body.get("parts"), list) else 1
    if not 1 <= count <= MAX_PARTS:  # before each part is validated
        message = Message("must have 1…%(most)s parts, got %(n)s", most=MAX_PARTS, n=count)
        return [FieldProblem(("parts",), message)]
    try:
        return Payload.model_validate(body)
    except ValidationError as problem:
        return list(field_problems(problem))


def validate_model(model: type[ModelT], body: Any) -> ModelT:
    """Validate settings; raises OrderProblem with every invalid field."""
    try:
        return model.model_validate(body)
    except ValidationError as problem:
        raise validation_problem(list(field_problems(problem))) from None


def field_problems(problem: ValidationError) -> Iterator[FieldProblem]:
    errors = problem.errors(include_url=False)
    parents = {error["loc"][:-1] for error in errors}
    for error in errors:
        if error["type"] == "too_short" and error["loc"] in parents:
            continue  # pydantic counts only the valid items
        path = tuple(
            storable(format_value(step).strip("'") if len(step) > MAX_NAME else step) if isinstance(step, str) else step
            for step in error["loc"]
        )
        yield FieldProblem(path, error_message(error))


def validation_problem(problems: Sequence[FieldProblem]) -> OrderProblem:
    """Build one OrderProblem: the message names the first fields, the details list them."""
    message = join_messages(problem.full_message for problem in problems[:_MAX_IN_MESSAGE])
    if (omitted := len(problems) - _MAX_IN_MESSAGE) > 0:
        message = Message("%(problem)s; and %(n)s more", problem=message, n=omitted)
    reported = problems[:MAX_REPORTED_PROBLEMS]
    fields = [{"field": problem.field, "message": problem.message} for problem in reported]
    return OrderProblem(OptiCode.VALIDATION, message, {"fields": fields})


def payload_json(payload: Payload) -> dict[str, Any]:
    """Convert to the stored JSON, without absent fields; `read_payload` reads it back."""
    return payload.model_dump(mode="json", exclude_none=True)


def payload_hash(payload: Payload) -> str:
    """Hash an order; the spelling of its keys and numbers does not matter."""
    return hashlib.sha256(canonical_json(payload_json(payload)).encode()).hexdigest()


def error_message(error: ErrorDetails) -> str:
    value, context = format_value(error["input"]), error.get("ctx", {})
    if error["type"] == "value_error":
        return Message(str(context["error"]))
    if (sentence := _MESSAGES.get(error["type"])) is None:
        return f"{error['msg'][:1].lower()}{error['msg'][1:]}, got {value}"
    return Message.fill(sentence, {**context, "given": value})


@dataclass(frozen=True, slots=True)
class CuttingOrder:
    """An order as a job carries it. The mode was decided when the order was created."""

    payload: Payload
    mode: OptiMode
    revision: int = 1

    @property
    def key(self) -> str:
        """The deduplication key: one job for a payload and revision."""
        return f"{payload_hash(self.payload)}:r{self.revision}"

    def as_json(self) -> dict[str, Any]:
        return {"order": payload_json(self.payload), "mode": self.mode, "revision": self.revision}

    @classmethod
    def from_job(cls, job: Job) -> Self:
        """Read the order of a job; raises OrderProblem if it carries none."""
        data = job.payload if isinstance(job.payload, dict) else {}
        return cls(read_payload(data.get("order")), data.get("mode", "C"), data.get("revision", 1))


def order_title(data: Any) -> str:
    """What lists call an order: its number and revision, and its customer unless that is masked."""
    number = field_of(data, "order.order_id")
    customer = field_of(data, "order.customer_snapshot_name")
    if not isinstance(number, str) or not number:
        return ""
    revision = field_of(data, "revision")
    revised = f"{number} r{revision}" if isinstance(revision, int) and revision > 1 else number
    shown = isinstance(customer, str) and customer and MASK not in customer
    return f"{customer} · {revised}" if shown else revised
