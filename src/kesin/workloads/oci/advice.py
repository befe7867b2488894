"""Advice on error codes: what a code means, who must act, what to do, what happens next.

The texts are in `advice.toml`, in English and Turkish. A code without a text of its own gets the
advice of its enum or its category, so that there is always an answer.
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
_HTTP_CODE: Final = re.compile(r"HTTP_([45])[0-9]{2}")


@dataclass(frozen=True, slots=True)
class OciAdvice:
    """The advice on one code in one language."""

    code: str  # as requested
    who: str  # you, producer, google_admin, nobody, us
    means: str
    act: str
    next: str


class _Texts(NamedTuple):
    """The texts, indexed by what they are looked up with."""

    names: tuple[str, ...]
    codes: Mapping[str, Any]  # keys cut to the stored length: Google has longer names
    enums: Mapping[str, Any]
    categories: Mapping[str, Any]
    general: Any


@cache
def _load_texts() -> _Texts:
    document = tomllib.loads(files(__package__).joinpath("advice.toml").read_text("utf-8"))
    enums, categories, general = (
        document.pop("enum"),
        document.pop("category"),
        document.pop("general"),
    )
    codes = {name: document[text.get("same_as", name)] for name, text in document.items()}
    for text in enums.values():
        for value in text.get("values", ()):
            codes.setdefault(value, text)
    cut = {name[:MAX_CODE]: text for name, text in codes.items()}
    return _Texts(tuple(codes), cut, enums, categories, general)


def advice(code: str | None, category: str | None = None, language: Language = "en") -> OciAdvice:
    """The advice on a code, or else on its enum or its category. Never fails."""
    text = _find_text(code or "", category or "")
    return OciAdvice(code=code or "", who=text["who"], **text.get(language, text["en"]))


def describe(code: str) -> Mapping[str, Any]:
    """The advice on a code in every language, ready for JSON."""
    text = _find_text(code, "")
    return {"who": text["who"], **{language: dict(text[language]) for language in LANGUAGES}}


def codes() -> tuple[str, ...]:
    """Every code that has a text, at full length."""
    return _load_texts().names


def _find_text(code: str, category: str) -> Mapping[str, Any]:
    texts = _load_texts()
    status = _HTTP_CODE.fullmatch(code)
    match = (
        texts.codes.get(code[:MAX_CODE])
        or (texts.codes.get(f"HTTP_{status[1]}XX") if status else None)
        or texts.enums.get(code.partition("_")[0])  # DateError_<a value added by Google later>
        or texts.categories.get(category)
    )
    text: Mapping[str, Any] = match or texts.general
    return text
