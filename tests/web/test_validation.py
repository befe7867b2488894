"""What FastAPI and pydantic refuse becomes messages with ids; their texts stay the same."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from kesin.foundation.messages import Message
from kesin.web.dashboard.frame.i18n import translate
from kesin.web.validation import invalid_request, validation_message
from tests.web.dashboard.turkish import catalogue


def refuse(_text: str) -> str:
    raise ValueError(Message("a form may have at most %(most)s fields", most=3))


class Sent(BaseModel):
    model_config = ConfigDict(extra="forbid")

    least: int = Field(1, ge=1)
    most: float = Field(1, le=2.0)
    above: float = Field(1, gt=0.5)
    short: str = Field("", max_length=1)
    long: str = Field("xxx", min_length=3)
    choice: Literal["x", "y"] = "x"
    yes: bool = True
    pattern: str = Field("a", pattern="^a$")
    refused: Annotated[str, AfterValidator(refuse)] = ""
    items: list[int] = Field([1], min_length=1)


def errors_of(**values: Any) -> list[Any]:
    with pytest.raises(ValidationError) as caught:
        Sent.model_validate(values)
    return caught.value.errors()


@pytest.mark.parametrize(
    ("name", "value", "turkish"),
    [
        ("least", 0, "en az 1 olmalı"),
        ("least", "x", "tam sayı olmalı"),
        ("most", 3, "en çok 2 olmalı"),
        ("above", 0, "0.5 değerinden büyük olmalı"),
        ("short", "ab", "en çok 1 karakter olmalı"),
        ("long", "a", "en az 3 karakter olmalı"),
        ("choice", "z", "'x' or 'y' olmalı"),
        ("yes", "q", "true ya da false olmalı"),
        ("pattern", "b", "şu kalıba uymalı: '^a$'"),
        ("refused", "a", "bir formda en çok 3 alan olabilir"),
        ("unknown", 1, "fazladan alan kabul edilmez"),
    ],
)
def test_the_text_stays_and_the_message_is_translated(name, value, turkish):
    [error] = errors_of(**{name: value})
    message = validation_message(error)
    assert message == error["msg"]
    assert translate(catalogue(), message) == turkish


def test_an_error_that_is_not_ours_keeps_its_text():
    [error] = errors_of(items=[])
    assert translate(catalogue(), validation_message(error)) is None
    without_context = {"type": "value_error", "msg": "Value error, x", "loc": ()}
    assert validation_message(without_context) == "Value error, x"
    unknown = {"type": "of_somebody_else", "msg": "is not right", "loc": (), "ctx": {"a": 1}}
    assert validation_message(unknown) == "is not right"


def test_the_problem_of_a_request_names_its_first_field():
    errors = [{**error, "loc": ("query", *error["loc"])} for error in errors_of(least=0, short="ab")]
    problem = invalid_request(errors)
    assert problem.message == "least: Input should be greater than or equal to 1"
    assert translate(catalogue(), problem.message) == "least: en az 1 olmalı"
    assert [field["field"] for field in problem.details["fields"]] == ["least", "short"]
    assert invalid_request([{**errors[0], "loc": ("body",)}]).message == errors[0]["msg"]
    assert invalid_request([]).message == "not valid"
