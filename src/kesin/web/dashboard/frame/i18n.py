"""The dashboard's languages: English in the templates, Turkish from ``.po`` files, not compiled."""

import gettext
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import Final, Literal, get_args

from babel.messages.pofile import read_po

from kesin.foundation.messages import Message

Language = Literal["en", "tr"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)
DEFAULT: Final[Language] = "en"
DASHBOARD: Final = "kesin.web.dashboard"
PROBLEMS: Final = "problems.po"  # messages of the floors below, by the id of their sentence


class Catalogue(gettext.NullTranslations):
    """The sentences of one language; a sentence without a translation stays English."""

    def __init__(self, language: Language, packages: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.language: Language = language
        self.problems: frozenset[str] = frozenset()  # messages of the floors below
        self._translations: dict[str, str | Sequence[str]] = {}
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
                    self._translations[key] = message.string
            if source.name == PROBLEMS:
                self.problems |= {str(message.id) for message in messages}

    def gettext(self, message: str) -> str:
        text = self._translations.get(message)
        return text if isinstance(text, str) else message

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        texts = self._translations.get(msgid1)
        if texts and not isinstance(texts, str) and all(texts):
            return texts[0] if n == 1 else texts[-1]
        return msgid1 if n == 1 else msgid2


catalogue_for: Final = cache(Catalogue)


def translate(catalogue: Catalogue, message: str) -> str | None:
    """A message of the floors below in another language; None if it is not one of ours."""
    if catalogue.language == DEFAULT:
        return message
    sentence = Message(message)
    if sentence.id not in catalogue.problems:
        return None
    values = {
        name: (translate(catalogue, value) or value) if isinstance(value, Message) else value
        for name, value in sentence.values.items()
    }
    text = catalogue.gettext(sentence.id)
    return text % values if values else text


def choose_language(cookie: str | None, accepted: str) -> Language:
    """The language of the cookie, else the first of ours that the browser asks for."""
    wishes = sorted(_accepted(accepted), key=lambda wish: -wish[1])
    names = [cookie, *(name for name, weight in wishes if weight > 0)]
    return next((language for name in names for language in LANGUAGES if name == language), DEFAULT)


def _accepted(header: str) -> Iterator[tuple[str, float]]:
    for part in header.split(","):
        name, *parameters = part.replace(" ", "").lower().split(";")
        text = next((value[2:] for value in parameters if value.startswith("q=")), "1")
        weight = float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else 0.0
        yield name.replace("_", "-").split("-")[0], weight
