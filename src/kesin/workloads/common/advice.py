"""Advice on error codes, from the `advice.toml` of each workload; a look-up never fails."""

import re
import tomllib
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple

from kesin.store.limits import MAX_CODE

Language = Literal["en", "tr"]

LANGUAGES: Final[tuple[Language, ...]] = ("en", "tr")
GENERAL: Final = "general"
_HTTP_CODE: Final = re.compile(r"HTTP_([45])[0-9]{2}")


class Advice(NamedTuple):
    """The advice on one code in one language; parts that a workload does not write are empty."""

    code: str  # as requested
    who: str = ""  # must act; the workload's texts say which roles there are
    means: str = ""
    act: str = ""
    next: str = ""


class AdviceTexts:
    """The texts of a workload, read from the `advice.toml` of its package on first use."""

    def __init__(self, package: str, general: str = GENERAL) -> None:
        self._package = package
        self._general = general  # the entry for codes that have no text

    def find(self, code: str | None, category: str | None = None, language: Language = "en") -> Advice:
        text = self._find_text(code or "", category or "")
        return Advice(code=code or "", who=text.get("who", ""), **text[language])

    def describe(self, code: str, category: str = "") -> dict[str, Any]:
        """The advice on an error in every language, ready for JSON."""
        text = self._find_text(code, category)
        who = {"who": text["who"]} if "who" in text else {}
        return {**who, **{language: dict(text[language]) for language in LANGUAGES}}

    @property
    def codes(self) -> tuple[str, ...]:
        return self._texts[0]

    @cached_property
    def _texts(self) -> tuple[tuple[str, ...], Mapping[str, Mapping[str, Any]]]:
        """The codes; and the texts by code (cut as it is stored), by enum and by category."""
        document = tomllib.loads(files(self._package).joinpath("advice.toml").read_text("utf-8"))
        enums, categories = (document.pop(name, {}) for name in ("enum", "category"))
        general = document[self._general]
        document.pop(GENERAL, None)
        codes = {name: document[text.get("same_as", name)] for name, text in document.items()}
        for text in enums.values():
            codes |= {value: text for value in text.get("values", ()) if value not in codes}
        texts = {name[:MAX_CODE]: text for name, text in codes.items()}
        texts |= {f"enum.{name}": text for name, text in enums.items()}
        texts |= {f"category.{name}": text for name, text in categories.items()}
        return tuple(codes), texts | {GENERAL: general}

    def _find_text(self, code: str, category: str) -> Mapping[str, Any]:
        status, texts = _HTTP_CODE.fullmatch(code), self._texts[1]
        status_class = f"HTTP_{status[1]}XX" if status else code
        enum = code.partition("_")[0]  # DateError_<a value added by Google later>
        keys = (code[:MAX_CODE], status_class, f"enum.{enum}", f"category.{category}", GENERAL)
        return next(texts[key] for key in keys if key in texts)
