"""Masks personal data and secrets in what pages show, by the names of fields.

The name of a field decides, not its value: rules that guess at values mask too little one day and
too much the next. In running text, a few unmistakable shapes are masked.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from kesin.foundation.messages import Message
from kesin.web.serialize import json_depth_limited

MASK: Final = "••••"
SHOWN_CHARS: Final = 4  # at the end of a long value, to tell two apart
LONG_CHARS: Final = 12
MAX_CHARS: Final = 100_000  # of one shown value

# Parts of a field's name without separators; and whole names that are too short to be parts.
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
    """Whether the value of a field with this name is masked."""
    plain = _PLAIN.sub("", name.casefold().translate(_FOLD))
    return plain in _WHOLE or any(part in plain for part in _PARTS)


def mask(value: Any) -> Any:
    """The value with everything private in it masked; its shape stays."""
    value = json_depth_limited(value)
    return _mask_inside(value) if isinstance(value, dict | list) else _mask_if_text(value)


def _mask_inside(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: mask_private(inner) if is_private(str(name)) else _mask_inside(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_mask_inside(inner) for inner in value]
    return _mask_if_text(value)


def mask_private(value: Any) -> Any:
    """Mask a private value and everything inside it; the end of a long text stays."""
    if isinstance(value, dict):
        return {name: mask_private(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [mask_private(inner) for inner in value]
    if value is None or isinstance(value, bool) or value == "":
        return value
    text = str(value)
    return MASK + text[-SHOWN_CHARS:] if len(text) >= LONG_CHARS else MASK


def mask_text(text: str | None) -> str | None:
    """Mask unmistakable shapes in running text, such as an error message."""
    if text is None:
        return None
    masked = text
    for shape in _IN_TEXT:
        masked = shape.sub(MASK, masked)
    if isinstance(text, Message):
        values = {name: mask_text(value) for name, value in text.values.items()}
        message = Message(text.id, **values)
        return message if message == masked else masked  # what is private may span two values
    return masked


def _mask_if_text(value: Any) -> Any:
    return mask_text(value) if isinstance(value, str) else value


def pretty(value: Any) -> str:
    """Indented JSON, cut at a maximum length."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "\n…"
