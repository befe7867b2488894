"""Advice on error codes: what an error means and what the operator should do.

The texts are in `advice.toml`, in English and Turkish. The dashboard, the command line and the API
share them. A code without its own text gets the general one, so a lookup never fails.
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
    """The advice on an error code, in one language."""

    code: str  # as the caller gave it
    means: str
    act: str


@cache
def _texts() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("advice.toml").read_text("utf-8"))


def find_advice(code: str | None, language: Language = "en") -> Advice:
    """Return the advice on a code."""
    text = _text(code or "")[language]
    return Advice(code or "", text["means"], text["act"])


def advice_json(code: str) -> Mapping[str, Any]:
    """Return the advice on a code in every language, ready for JSON."""
    return {language: dict(_text(code)[language]) for language in LANGUAGES}


def _text(code: str) -> Mapping[str, Any]:
    texts = _texts()
    text: Mapping[str, Any] = texts.get(code) or texts[OptiCode.UNKNOWN]
    return text
