"""Typed payloads: a pydantic model or a dataclass instead of plain JSON values."""

import json
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from kesin.engine.validation import BadInput
from kesin.lifecycle.model import Job


class PayloadType:
    """Validates payloads when they are enqueued, and hands them over as their type."""

    def __init__(self, kind: Any) -> None:
        adapter = self._adapter = TypeAdapter[Any](kind)

        class TypedJob(Job):
            __slots__ = ()

            @property
            def payload(self) -> Any:
                """The payload as its type; raises ValidationError if it was stored as another."""
                return adapter.validate_json(self.payload_json)

            def __reduce__(self) -> tuple[Any, ...]:
                return Job._make, (tuple(self),)

        self._job = TypedJob

    def plain(self, payload: Any) -> Any:
        """The payload as JSON values, from its type or from JSON values that fit it."""
        adapter = self._adapter
        try:
            value = adapter.validate_python(payload)
            text = adapter.dump_json(value, by_alias=True, round_trip=True, warnings="error")
            adapter.validate_json(text)  # what cannot be read again is not stored
        except ValidationError as problem:
            [first, *_] = problem.errors(include_url=False, include_input=False)
            where = ".".join(map(str, ("payload", *first["loc"])))
            raise BadInput("bad_payload", "payload", f"{where}: {first['msg']}") from None
        except PydanticSerializationError as problem:
            raise BadInput("bad_payload", "payload", f"payload: {problem}") from None
        return json.loads(text)

    def typed(self, jobs: Iterable[Job]) -> list[Job]:
        return list(map(self._job._make, jobs))
