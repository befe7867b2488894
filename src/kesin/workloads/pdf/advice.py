"""Advice on error codes: what a code means, who acts and how, and what follows.

The texts are in `advice.toml`, in English and Turkish, for jobs, batches and webhooks alike. A code
without a text of its own gets the general advice.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

Language = Literal["en", "tr"]

LANGUAGES: Final[tuple[Language, ...]] = ("en", "tr")
GENERAL: Final = "general"


@cache
def _advice_texts() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("advice.toml").read_text("utf-8"))


def describe(code: str) -> Mapping[str, Any]:
    """Return the advice on a code in every language; for an unknown code, general advice."""
    texts = _advice_texts()
    text = texts.get(code) or texts[GENERAL]
    return {"who": text["who"], **{language: dict(text[language]) for language in LANGUAGES}}


def documented_codes() -> tuple[str, ...]:
    """The codes that have a text."""
    return tuple(name for name in _advice_texts() if name != GENERAL)
