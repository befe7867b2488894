"""How the text of a searchable field becomes the terms that a search finds.

The migrations ``0013_titles_and_search.sql`` do the same in SQL: the terms are written by triggers,
whatever enqueues a job. Lower and upper case, dotted and dotless i, letters with and without marks
are the same; signs between words are spaces. A field is found by its beginning and by that of each
of its first words.
"""

from collections.abc import Iterable
from functools import reduce
from typing import Any, Final

MAX_SEARCH_FIELDS: Final = 8  # of a queue
MAX_TERM: Final = 200  # characters of a field that are searched
MAX_WORDS: Final = 8  # of a field, from whose beginnings it is found
_MARKED: Final = {
    "a": "AÀÁÂÃÄÅàáâãäå",
    "c": "CÇç",
    "e": "EÈÉÊËèéêë",
    "g": "GĞğ",
    "i": "IİıÌÍÎÏìíîï",
    "n": "NÑñ",
    "o": "OÒÓÔÕÖØòóôõöø",
    "s": "SŞşß",
    "u": "UÙÚÛÜùúûü",
    "y": "YÝýÿ",
    " ": "-_/\\.,;:@#+*()[]\"'|·–—…\t\n\r",
}
_UPPER: Final = {letter: letter.lower() for letter in "BDFHJKLMPQRTVWXZ"}
FOLDED: Final = _UPPER | {sign: plain for plain, signs in _MARKED.items() for sign in signs}
_TABLE: Final = str.maketrans(FOLDED)
AFTER_ALL: Final = "\U0010ffff"  # sorts after every text with the same beginning


def fold(text: str) -> str:
    """The text as terms are written and searched."""
    return text[:MAX_TERM].translate(_TABLE).replace("  ", " ").replace("  ", " ").strip(" ")


def field_of(payload: Any, name: str) -> Any:
    """The value of a payload's field; a dotted name reaches into objects."""
    return reduce(lambda at, part: at.get(part) if isinstance(at, dict) else None, name.split("."), payload)


def terms_of(payload: Any, fields: Iterable[str]) -> set[str]:
    """What a payload is found by: texts and whole numbers of these fields."""
    terms = set()
    for name in fields:
        value = field_of(payload, name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            text = fold(str(value))
            words = [word for word in text.split(" ")[:MAX_WORDS] if word]
            terms |= {text[f" {text}".index(f" {word}") :] for word in words}
    return terms


def is_found(payload: Any, fields: Iterable[str], search: str) -> bool:
    wanted = fold(search)
    return bool(wanted) and any(term.startswith(wanted) for term in terms_of(payload, fields))
