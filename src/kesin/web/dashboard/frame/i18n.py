"""The dashboard's languages: English in the templates, Turkish from catalogues.

A catalogue is the ``.po`` files of the dashboard and of the workloads' pages, read when the first
page in its language is asked for: there is nothing to compile when a package is built.

Messages of the floors below arrive in English as one text, with their values filled in. They are
recognised by the words around the values and translated from the files ``problems.po``. A message
that is in none of them stays as it is.
"""

from __future__ import annotations

import gettext
import re
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple, get_args

from babel.messages.pofile import read_po

Language = Literal["en", "tr"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
DEFAULT: Final[Language] = "en"
DASHBOARD: Final = "kesin.web.dashboard"

PROBLEMS: Final = "problems.po"
MAX_DEPTH: Final = 4  # messages within messages
MAX_PARTS: Final = 12  # problems in one message
MAX_MESSAGE_CHARS: Final = 2_000  # longer messages are not ours
MAX_REMEMBERED: Final = 2_000
_PLACE: Final = re.compile(r"%\((\w+)\)s")
# Places that hold a message themselves. The first two must be one of ours, or the sentence does
# not match.
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
    """A sentence with places, and the regular expression that any filled-in form matches."""

    shape: re.Pattern[str]
    sentence: str


class Catalogue(gettext.NullTranslations):
    """The sentences of one language; a sentence without a translation stays English."""

    def __init__(self, language: Language, packages: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.language: Language = language
        self.problems: frozenset[str] = frozenset()  # messages of the floors below
        self._translations: dict[str, str | tuple[str, ...]] = {}
        if language != DEFAULT:
            for package in (DASHBOARD, *packages):
                self._read(package)

    def _read(self, package: str) -> None:
        folder = files(package) / "locale" / self.language
        if not folder.is_dir():
            return
        for source in sorted(folder.iterdir(), key=lambda file: file.name):
            with source.open("rb") as file:
                messages = [message for message in read_po(file) if message.id]
            for message in messages:
                if message.string and not message.fuzzy:
                    key = message.id if isinstance(message.id, str) else message.id[0]
                    text = message.string
                    self._translations[key] = text if isinstance(text, str) else tuple(text)
            if source.name == PROBLEMS:
                self.problems |= {str(message.id) for message in messages}

    @cached_property
    def _translated(self) -> frozenset[str]:
        return frozenset(text for text in self._translations.values() if isinstance(text, str))

    def is_translation(self, text: str) -> bool:
        """Whether this is a sentence of this language already."""
        return text in self._translated

    def gettext(self, message: str) -> str:
        text = self._translations.get(message)
        return text if isinstance(text, str) else message

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        texts = self._translations.get(msgid1)
        if isinstance(texts, tuple) and all(texts):
            return texts[0] if n == 1 else texts[-1]
        return msgid1 if n == 1 else msgid2

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """The problems with places: first those around a message of ours, which match or do not.

        Of the others, those with the most words of their own come first.
        """
        sentences = [sentence for sentence in self.problems if _PLACE.search(sentence)]
        sentences.sort(
            key=lambda text: (not _holds_problem(text), -len(_PLACE.sub("", text)), text)
        )
        return tuple(Pattern(_shape(sentence), sentence) for sentence in sentences)


@cache
def catalogue_for(language: Language, packages: tuple[str, ...] = ()) -> Catalogue:
    """The catalogue of a language, with the translations of these packages."""
    return Catalogue(language, packages)


def translate_problem(catalogue: Catalogue, message: str) -> str | None:
    """A message of the floors below in another language; None if it is not one of ours."""
    if catalogue.language == DEFAULT or catalogue.is_translation(message):
        return message
    return _translate(catalogue, message) if len(message) <= MAX_MESSAGE_CHARS else None


@lru_cache(maxsize=MAX_REMEMBERED)
def _translate(catalogue: Catalogue, message: str, depth: int = 0) -> str | None:
    if message in catalogue.problems:
        return catalogue.gettext(message)
    if depth >= MAX_DEPTH:
        return None
    parts = message.split("; ")
    if 1 < len(parts) <= MAX_PARTS:
        translated = [_translate(catalogue, part, depth + 1) for part in parts]
        if None not in translated:
            return "; ".join(map(str, translated))
    for pattern in catalogue.patterns:
        match = pattern.shape.fullmatch(message)
        if match and (text := _fill(catalogue, pattern.sentence, match.groupdict(), depth)):
            return text
    return None


def _fill(catalogue: Catalogue, sentence: str, matched: dict[str, str], depth: int) -> str | None:
    """The translated sentence with the matched values in its places."""
    values = dict(matched)
    for name in _INNER:
        if name in matched:
            inner = _translate(catalogue, matched[name], depth + 1)
            if inner is None and name != "said":
                return None
            values[name] = inner or matched[name]
    return catalogue.gettext(sentence) % values


def _holds_problem(sentence: str) -> bool:
    return any(f"%({name})s" in sentence for name in _INNER[:2])


def _shape(sentence: str) -> re.Pattern[str]:
    """The regular expression of the sentence with its places filled in.

    The text may come from anywhere. So a place ends where the words after it first stand, and is
    not tried again (``(?>…)``): the time grows linearly with the length of a text.
    """
    first, *others = _PLACE.split(sentence.replace("%%", "%"))
    *between, last = others[1::2]
    shape, places = re.escape(first), ""
    for name, words in zip(others[::2], (*between, ""), strict=True):
        places += f"(?P<{name}>{_SHAPES.get(name, '.+?')})"
        if words:
            shape, places = f"{shape}(?>{places}{re.escape(words)})", ""
    return re.compile(f"{shape}{places}{re.escape(last)}", re.DOTALL)


def choose_language(cookie: str | None, accepted: str) -> Language:
    """The language of the cookie, else the first of ours that the browser asks for."""
    for language in LANGUAGES:
        if cookie == language:
            return language
    for name, weight in sorted(_accepted(accepted), key=lambda wish: -wish[1]):
        for language in LANGUAGES:
            if name == language and weight > 0:
                return language
    return DEFAULT


def _accepted(header: str) -> Iterator[tuple[str, float]]:
    """The languages of an Accept-Language header with their weights."""
    for part in header.split(","):
        name, *parameters = part.replace(" ", "").lower().split(";")
        text = next((value[2:] for value in parameters if value.startswith("q=")), "1")
        weight = float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else 0.0
        yield name.replace("_", "-").split("-")[0], weight
