"""What an error code says to the person who has to act: what it means, who does what, what follows.

The texts are in `advice.toml`, in English and Turkish, for jobs, batches and webhooks alike. A code
nobody has written about still gets an answer.
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
def _book() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("advice.toml").read_text("utf-8"))


def describe(code: str) -> Mapping[str, Any]:
    """The advice on a code in every language, as JSON wants it; of an unknown one, in general."""
    book = _book()
    text = book.get(code) or book[GENERAL]
    return {"who": text["who"], **{language: dict(text[language]) for language in LANGUAGES}}


def codes() -> tuple[str, ...]:
    """Every code that has a text."""
    return tuple(name for name in _book() if name != GENERAL)
