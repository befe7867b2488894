"""Payloads as people may look at them: personal data and secrets covered, by the name of the field.

What a field is called decides, not what is in it: a rule that guesses at values covers too little
one day and too much the next. A few shapes that nobody mistakes are covered in running text.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from kesin.web.serialize import shown

COVER: Final = "••••"
KEPT: Final = 4  # signs of a long value that stay, so that two can be told apart
LONG: Final = 12
MOST_CHARACTERS: Final = 100_000  # of one folded value

# Parts of a field's name, its words run together; and whole names that are too short to be parts.
_PARTS: Final = (
    "phone", "telephone", "telefon", "mobile", "msisdn", "email", "eposta", "mail", "fullname",
    "firstname", "lastname", "surname", "customername", "contactname", "address", "adres", "iban",
    "cardnumber", "taxid", "taxnumber", "vergino", "tckimlik", "kimlikno", "nationalid", "passport",
    "birthdate", "birthday", "gclid", "gbraid", "wbraid", "clickid", "ipaddress", "useragent",
    "token", "secret", "password", "passwd", "parola", "authorization", "apikey", "privatekey",
    "credential", "cookie", "session", "signature",
)  # fmt: skip
_WHOLE: Final = frozenset(
    {"tel", "gsm", "ip", "pin", "cvv", "cvc", "tckn", "vkn", "ssn", "auth", "key", "pass", "pwd"}
    | {"customer", "recipient", "buyer", "musteri"}
)
_PLAIN: Final = re.compile(r"[^a-z0-9]")
_FOLD: Final = str.maketrans("çğıöşü", "cgiosu")
_IN_TEXT: Final = (
    re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),  # an e-mail address
    re.compile(r"(?<![\w.-])\+\d[\d ()-]{8,}\d"),  # a phone number with its country
    re.compile(r"(?i)\bbearer\s+[\w.~+/=-]+"),
    re.compile(r"\bkesin_[a-z0-9]{8}_[\w-]+"),
    re.compile(r"""(?i)\b(?:gclid|gbraid|wbraid)["']?\s*[=:]\s*["']?[\w.-]+"""),
)


def is_private(name: str) -> bool:
    """Whether what a field of this name holds is covered."""
    plain = _PLAIN.sub("", name.casefold().translate(_FOLD))
    return plain in _WHOLE or any(part in plain for part in _PARTS)


def masked(value: Any) -> Any:
    """The value with everything private in it covered; its shape stays."""
    value = shown(value)
    return _masked(value) if isinstance(value, dict | list) else _in_text(value)


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: covered(one) if is_private(str(name)) else _masked(one)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_masked(one) for one in value]
    return _in_text(value)


def covered(value: Any) -> Any:
    """A private value: what is inside it is private too; of a long text the end stays."""
    if isinstance(value, dict):
        return {name: covered(one) for name, one in value.items()}
    if isinstance(value, list):
        return [covered(one) for one in value]
    if value is None or isinstance(value, bool) or value == "":
        return value
    text = str(value)
    return COVER + text[-KEPT:] if len(text) >= LONG else COVER


def masked_text(text: str | None) -> str | None:
    """Running text, like an error's message, without what nobody mistakes for anything else."""
    if text is None:
        return None
    for shape in _IN_TEXT:
        text = shape.sub(COVER, text)
    return text


def _in_text(value: Any) -> Any:
    return masked_text(value) if isinstance(value, str) else value


def pretty(value: Any) -> str:
    """JSON for people; of what is very long, the beginning."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "\n…"
