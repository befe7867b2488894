"""A lifecycle as text and back, without defaults and docs: a new word changes no fingerprint."""

import hashlib
import json
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.errors import Category, Code, Rule, Taxonomy, Verdict
from kesin.lifecycle.vocabulary import After, DeclarationError, Fixed, Guard

_TYPES: Final[dict[str, Any]] = {
    kind.__name__: kind
    for kind in (*(Lifecycle, State, Move, Guard, Fixed, After, Backoff), *(Taxonomy, Code, Rule, Category, Verdict))
}


@lru_cache(maxsize=64)
def lifecycle_json(lifecycle: Lifecycle) -> str:
    """The declaration as JSON; the same declaration always gives the same text."""
    return json.dumps(_encode(lifecycle), ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=64)
def lifecycle_from_json(text: str) -> Lifecycle:
    """The lifecycle of a text; raises DeclarationError for one of a newer version."""
    try:
        lifecycle = _decode(json.loads(text))
    except (KeyError, TypeError, ValueError) as problem:
        raise DeclarationError(f"this version of Kesin cannot read these rules: {problem}") from None
    if not isinstance(lifecycle, Lifecycle):
        raise DeclarationError("these rules are not a lifecycle")
    return lifecycle


@lru_cache(maxsize=64)
def rules_fingerprint(lifecycle: Lifecycle) -> str:
    """What two declarations share if and only if they are the same but for documentation."""
    return fingerprint_of(lifecycle_json(lifecycle))


def fingerprint_of(definition: str) -> str:
    return hashlib.sha256(definition.encode()).hexdigest()[:32]


def _encode(value: Any) -> Any:
    if isinstance(value, Enum):
        return {"is": type(value).__name__, "value": value.value}
    if is_dataclass(value):
        parts = {
            part.name: _encode(getattr(value, part.name))
            for part in fields(value)
            if part.name != "doc" and getattr(value, part.name) != part.default
        }
        return {"is": type(value).__name__, **parts}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"a declaration cannot contain a {type(value).__name__}")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    if isinstance(value, dict):
        parts = {name: _decode(item) for name, item in value.items() if name != "is"}
        return _TYPES[value["is"]](**parts)
    return value
