"""Problems and messages from what FastAPI and pydantic refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import PydanticKnownError

from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid


def invalid_request(errors: Sequence[Any]) -> Invalid:
    """The problem of a request that FastAPI refused; its message is about the first field."""
    fields = [
        {
            "field": ".".join(str(part) for part in error["loc"][1:]),
            "message": validation_message(error),
        }
        for error in errors
    ]
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
