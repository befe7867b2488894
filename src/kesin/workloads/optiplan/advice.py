"""What an error code says to the person at the saw: what happened, and what to do about it.

The texts are in `advice.toml`, in English and Turkish, for every door alike: dashboard, command
line and API. A code nobody has written about gets the general one; asking never fails.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

from kesin.workloads.optiplan.errors import OptiCode

Language = Literal["en", "tr"]

LANGUAGES: Final[tuple[Language, ...]] = ("en", "tr")


@dataclass(frozen=True, slots=True)
class Advice:
    """Two sentences or so."""

    code: str  # as it was asked for
    means: str
    act: str


@cache
def _book() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("advice.toml").read_text("utf-8"))


def advice(code: str | None, language: Language = "en") -> Advice:
    """The advice on a code."""
    text = _text(code or "")[language]
    return Advice(code or "", text["means"], text["act"])


def describe(code: str) -> Mapping[str, Any]:
    """The advice on a code in every language, as JSON wants it."""
    return {language: dict(_text(code)[language]) for language in LANGUAGES}


def _text(code: str) -> Mapping[str, Any]:
    book = _book()
    text: Mapping[str, Any] = book.get(code) or book[OptiCode.UNKNOWN]
    return text
