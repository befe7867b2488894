"""The dashboard's languages: English in the templates, Turkish from a catalogue.

The catalogue is a folder of plain ``.po`` files, one a part of the dashboard, read when the first
page in its language is asked for: there is nothing to compile when the package is built.
"""

from __future__ import annotations

import gettext
import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple, get_args

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


PROBLEMS: Final = "problems.po"
MOST_DEEP: Final = 4  # messages in messages
MOST_PARTS: Final = 12  # problems in one message
MOST_LETTERS: Final = 2_000  # of one that is looked up; ours are shorter
MOST_REMEMBERED: Final = 2_000
_PLACE: Final = re.compile(r"%\((\w+)\)s")
# Places that hold a message themselves. With the first two, one of ours, or the sentence is not it.
_INNER: Final = ("told", "fault", "said")
_NUMBERS: Final = ("n", "m", "most", "least", "low", "high", "row", "days", "code", "status")
_DIGITS: Final = ("whole", "decimals", "same", "rest")
_SHAPES: Final = {
    "told": ".+",
    "said": ".+?",
    "fault": r"(?:must|is|are|does|holds)\b.+",
    "field": r"[\w.\[\]/-]{1,200}",
    "file": r"\S{1,1000}",
    "line": r"(?:, near line \d.*)?",
    "where": r"beside\b.+",
    **dict.fromkeys(_NUMBERS, r"\S{1,80}?"),
    **dict.fromkeys(_DIGITS, r"\d{1,9}"),
}


class Pattern(NamedTuple):
    """A sentence with places, and what any text must look like to be it."""

    shape: re.Pattern[str]
    sentence: str


def told_in(language: Language, message: str) -> str | None:
    """The message in a language; None where it is not one of ours."""
    if language == DEFAULT or words_of(language).says(message):
        return message
    return _told(language, message) if len(message) <= MOST_LETTERS else None


@lru_cache(maxsize=MOST_REMEMBERED)
def _told(language: Language, message: str, deep: int = 0) -> str | None:
    words = words_of(language)
    if message in sentences(language):
        return words.gettext(message)
    if deep >= MOST_DEEP:
        return None
    parts = message.split("; ")
    if 1 < len(parts) <= MOST_PARTS:
        several = [_told(language, one, deep + 1) for one in parts]
        if None not in several:
            return "; ".join(map(str, several))
    for pattern in patterns(language):
        found = pattern.shape.fullmatch(message)
        if found and (text := _filled(words, pattern.sentence, found.groupdict(), deep)):
            return text
    return None


def _filled(words: Words, sentence: str, found: dict[str, str], deep: int) -> str | None:
    """The sentence with what was found in its places."""
    values = dict(found)
    for name in _INNER:
        if name in found:
            inner = _told(words.language, found[name], deep + 1)
            if inner is None and name != "said":
                return None
            values[name] = inner or found[name]
    return words.gettext(sentence) % values


@cache
def sentences(language: Language) -> frozenset[str]:
    """All that the catalogue has of those below."""
    source = files("kesin.web.dashboard") / "locale" / language / PROBLEMS
    with source.open("rb") as catalogue:
        return frozenset(str(one.id) for one in read_po(catalogue) if one.id)


@cache
def patterns(language: Language) -> tuple[Pattern, ...]:
    """The sentences with places: first those around a message of ours, which fit or do not.

    Of the others those with most words of their own come first.
    """
    placed = [one for one in sentences(language) if _PLACE.search(one)]
    placed.sort(key=lambda one: (not _holds_one(one), -len(_PLACE.sub("", one)), one))
    return tuple(Pattern(_shape(one), one) for one in placed)


def _holds_one(sentence: str) -> bool:
    return any(f"%({name})s" in sentence for name in _INNER[:2])


def _shape(sentence: str) -> re.Pattern[str]:
    """What the sentence looks like, filled in.

    Others may have written the text. So a place ends where the words after it first stand, and is
    not looked at again (``(?>…)``): the time grows with the length of a text, whatever is in it.
    """
    first, *others = _PLACE.split(sentence.replace("%%", "%"))
    *between, last = others[1::2]
    shape, places = re.escape(first), ""
    for name, words in zip(others[::2], (*between, ""), strict=True):
        places += f"(?P<{name}>{_SHAPES.get(name, '.+?')})"
        if words:
            shape, places = f"{shape}(?>{places}{re.escape(words)})", ""
    return re.compile(f"{shape}{places}{re.escape(last)}", re.DOTALL)
