"""What an error code says to the person who has to act: what it means, who does what, what follows.

The texts are in `advice.toml`, in English and Turkish. A code nobody has written about yet still
gets an answer, from its enum or its category: whoever looks at it needs one now, not later.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple

from kesin.store.limits import MAX_CODE

Language = Literal["en", "tr"]

LANGUAGES: Final[tuple[Language, ...]] = ("en", "tr")
_HTTP: Final = re.compile(r"HTTP_([45])[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Advice:
    """Three sentences, and whose turn it is."""

    code: str  # as it was asked for
    who: str  # you, producer, google_admin, nobody, us
    means: str
    act: str
    next: str


class _Book(NamedTuple):
    """The texts by what they are looked up with."""

    names: tuple[str, ...]
    codes: Mapping[str, Any]  # cut as they are stored: Google has longer names
    enums: Mapping[str, Any]
    categories: Mapping[str, Any]
    general: Any


@cache
def _book() -> _Book:
    told = tomllib.loads(files(__package__).joinpath("advice.toml").read_text("utf-8"))
    enums, categories, general = told.pop("enum"), told.pop("category"), told.pop("general")
    codes = {name: told[text.get("same_as", name)] for name, text in told.items()}
    for text in enums.values():
        for value in text.get("values", ()):
            codes.setdefault(value, text)
    cut = {name[:MAX_CODE]: text for name, text in codes.items()}
    return _Book(tuple(codes), cut, enums, categories, general)


def advice(code: str | None, category: str | None = None, language: Language = "en") -> Advice:
    """The advice on a code; of one nobody knows, on its enum or its category. Never fails."""
    text = _text(code or "", category or "")
    return Advice(code=code or "", who=text["who"], **text.get(language, text["en"]))


def describe(code: str) -> Mapping[str, Any]:
    """The advice on a code in every language, as JSON wants it."""
    text = _text(code, "")
    return {"who": text["who"], **{language: dict(text[language]) for language in LANGUAGES}}


def codes() -> tuple[str, ...]:
    """Every code that has a text, spelled in full."""
    return _book().names


def _text(code: str, category: str) -> Mapping[str, Any]:
    book = _book()
    status = _HTTP.fullmatch(code)
    found = (
        book.codes.get(code[:MAX_CODE])
        or (book.codes.get(f"HTTP_{status[1]}XX") if status else None)
        or book.enums.get(code.partition("_")[0])  # DateError_<a value Google adds later>
        or book.categories.get(category)
    )
    text: Mapping[str, Any] = found or book.general
    return text
