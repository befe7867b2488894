"""The dashboard's languages: English in the templates, Turkish from a catalogue.

The catalogue is a folder of plain ``.po`` files, one a part of the dashboard, read when the first
page in its language is asked for: there is nothing to compile when the package is built.
"""

from __future__ import annotations

import gettext
from functools import cache
from importlib.resources import files
from typing import Final, Literal, get_args

from babel.messages.pofile import read_po

Language = Literal["en", "tr"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
DEFAULT: Final[Language] = "en"


class Words(gettext.NullTranslations):
    """One language's sentences; what has no translation is said in English."""

    def __init__(self, language: Language) -> None:
        super().__init__()
        self.language: Language = language
        self._said: dict[str, str | tuple[str, ...]] = {}
        self._own: frozenset[str] = frozenset()
        if language == DEFAULT:
            return
        folder = files("kesin.web.dashboard") / "locale" / language
        for source in sorted(folder.iterdir(), key=lambda one: one.name):
            with source.open("rb") as catalogue:
                for message in read_po(catalogue):
                    if message.id and message.string and not message.fuzzy:
                        key = message.id if isinstance(message.id, str) else message.id[0]
                        said = message.string
                        self._said[key] = said if isinstance(said, str) else tuple(said)
        self._own = frozenset(one for one in self._said.values() if isinstance(one, str))

    def says(self, text: str) -> bool:
        """Whether this is one of the language's own sentences already."""
        return text in self._own

    def gettext(self, message: str) -> str:
        said = self._said.get(message)
        return said if isinstance(said, str) else message

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        said = self._said.get(msgid1)
        if isinstance(said, tuple) and all(said):
            return said[0] if n == 1 else said[-1]
        return msgid1 if n == 1 else msgid2


@cache
def words_of(language: Language) -> Words:
    """The words of a language."""
    return Words(language)


def chosen(cookie: str | None, accepted: str) -> Language:
    """The language somebody chose, else the first of ours that the browser asks for."""
    for language in LANGUAGES:
        if cookie == language:
            return language
    wanted = sorted(map(_wanted, accepted.split(",")), key=lambda one: -one[1])
    for name, weight in wanted:
        for language in LANGUAGES:
            if name == language and weight > 0:
                return language
    return DEFAULT


def _wanted(part: str) -> tuple[str, float]:
    """A language that a browser asks for, and how much it likes it."""
    name, *others = part.replace(" ", "").lower().split(";")
    said = next((one[2:] for one in others if one.startswith("q=")), "1")
    weight = float(said) if said.replace(".", "", 1).isdecimal() and said.isascii() else 0.0
    return name.replace("_", "-").split("-")[0], weight
