"""Problems and messages from what FastAPI and pydantic refuse."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import PydanticKnownError

from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid


def check_parameters(request: Request) -> None:
    """Refuse unknown query parameters, which would be ignored; the dashboard's pages take any."""
    route, query = request.scope.get("route"), request.scope.get("query_string")
    if not query or not isinstance(route, APIRoute) or not route.include_in_schema:
        return
    known = sorted(set(_query_names(route.dependant)))
    for name in request.query_params:
        if name not in known:
            message = Message(
                "unknown query parameter %(field)s; use one of: %(known)s",
                field=repr(name[:64]),
                known=", ".join(known) or "none",
            )
            raise Invalid(message, details={"fields": [{"field": name[:64], "message": message}]})


def _query_names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        kind = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from (inner.alias or name for name, inner in kind.model_fields.items())
        else:
            yield field.alias
    for inner_dependant in dependant.dependencies:
        yield from _query_names(inner_dependant)


def invalid_request(errors: Sequence[Any]) -> Invalid:
    """The problem of a request that FastAPI refused; its message is about the first field."""
    paths = [".".join(map(str, error["loc"][1:])) for error in errors]
    messages = map(validation_message, errors)
    fields = [{"field": at, "message": text} for at, text in zip(paths, messages, strict=True)]
    first = fields[0] if fields else {"field": "", "message": "not valid"}
    message = first["message"]
    if first["field"]:
        message = Message("%(field)s: %(problem)s", field=first["field"], problem=message)
    return Invalid(message, details={"fields": fields})


def validation_message(error: Mapping[str, Any]) -> Message:
    """The message of one of pydantic's errors; its text is pydantic's."""
    context = error.get("ctx") or {}
    if error["type"] == "value_error" and "error" in context:
        return Message("Value error, %(problem)s", problem=Message(str(context["error"])))
    try:
        template = PydanticKnownError(error["type"], context or None).message_template
    except (KeyError, TypeError, ValueError):
        return Message(error["msg"])
    values = {
        name: f"{value:g}" if isinstance(value, float) else value
        for name, value in context.items()
        if f"{{{name}}}" in template
    }
    for plural in ("", "s"):
        sentence = template.replace("{expected_plural}", plural)
        for name in values:
            sentence = sentence.replace(f"{{{name}}}", f"%({name})s")
        message = Message(sentence, **values)
        if message == error["msg"]:
            return message
    return Message(error["msg"])
