"""What a producer sends, turned into fields of a conversion: identifiers are hashed on arrival.

Nothing here keeps, returns or quotes a plain value: what leaves is a SHA-256 hash, or a message
that names the field. The same person gives the same hash, however the value was written; a value
that reads two ways is refused, because a wrong guess would match another person or none.
"""

import re
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from kesin.engine.access.masking import mask_private
from kesin.foundation.text import storable
from kesin.workloads.oci.conversions.conversion import (
    CONSENT_FIELDS,
    HASH_FIELDS,
    INPUT_FIELDS,
    PLAIN_FIELDS,
    ParsedRow,
    Row,
    RowDefaults,
    Unsendable,
)

MAX_SHOWN_NAME: Final = 80  # characters of an unknown field's name
# What our own files have beside the fields of a row; read back, it is ignored.
EXPORTED_FIELDS: Final = (
    *("id", "orderId", "errorCode", "errorCategory", "lastError", "whatToDo", "attempts"),
    "failedAt",
)
# Country: its calling code, the prefix of calls within it, and the digits of a number without both.
_PLANS: Final = map(str.split, Path(__file__).with_name("phone_plans.txt").read_text("ascii").splitlines())
PHONE_COUNTRIES: Final = {
    country: (code, trunk.strip("-"), range(int(least), int(most) + 1)) for country, code, trunk, least, most in _PLANS
}
_BY_CODE: Final = {code: (trunk, lengths) for code, trunk, lengths in PHONE_COUNTRIES.values()}
_CLICK_IN_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{6,}")
_ZERO_KEPT: Final = "39"  # in Italy a number may begin with a zero, also after +39
# What people and programs put into numbers: blanks, dashes, and marks of the writing direction.
_ASCII_SEPARATORS: Final = b" \t\r\n()-./"
_SEPARATORS: Final = dict.fromkeys(
    [*map(ord, "\u00a0\u202f\u2060\ufeff"), *range(0x2000, 0x2016), *range(0x202A, 0x202F)]
)
_NO_PLAN: Final = ("", "", range(0))  # without a country
_INTERNATIONAL: Final = re.compile(r"[1-9][0-9]{7,14}")
_EMAIL: Final = re.compile(r"[a-z0-9!#$%&'*+/=?^_`{|}~.-]++@[a-z0-9-]++(?:\.[a-z0-9-]++)++")
_MAX_EMAIL: Final = 254
_KNOWN_FIELDS: Final = frozenset({*INPUT_FIELDS, *EXPORTED_FIELDS})
_TURNED: Final = frozenset({"consent", *PLAIN_FIELDS, *HASH_FIELDS})
_CONSENT: Final = frozenset(CONSENT_FIELDS)
_GOOGLE_MAIL: Final = ("gmail.com", "googlemail.com")


def checked_row(row: ParsedRow, defaults: RowDefaults) -> Row:
    """Return the row with a conversion's fields only, hashes as bytes; raises Unsendable."""
    row = known_fields(row, _KNOWN_FIELDS, "%(field)s is not a field of a conversion")
    if _TURNED.isdisjoint(row):
        return row
    fields = dict(row)
    _flatten_consent(fields)
    email, phone = fields.pop("email", None), fields.pop("phone", None)
    if not defaults.enhanced:
        return {name: value for name, value in fields.items() if name not in HASH_FIELDS}
    if email is not None and str(email).strip():
        _put_hash(fields, "hashedEmail", hash_email(email))
    if phone is not None and str(phone).strip():
        _put_hash(fields, "hashedPhone", hash_phone(phone, defaults.phone_country))
    return fields


def known_fields(row: ParsedRow, known: frozenset[str], why: str) -> Row:
    """Return the row if it is one, and has no other fields; raises Unsendable."""
    if isinstance(row, Unsendable):
        raise row
    if not known.issuperset(row):
        shown = storable(next(str(name) for name in row if name not in known))[:MAX_SHOWN_NAME]
        raise Unsendable("UNKNOWN_FIELD", shown, why, field=repr(shown))
    return row


def _flatten_consent(fields: dict[str, Any]) -> None:
    """Turn the object ``consent`` into its fields, which a file has as columns."""
    consent = fields.pop("consent", None)
    if consent in (None, ""):
        return
    is_known = isinstance(consent, dict) and _CONSENT.issuperset(consent)
    if not is_known or CONSENT_FIELDS[0] in fields or CONSENT_FIELDS[1] in fields:
        why = "consent must be an object with adUserData and adPersonalization, each given once"
        raise Unsendable("INVALID_CONSENT", "consent", why)
    fields.update(consent)


def _put_hash(fields: dict[str, Any], name: str, found: bytes) -> None:
    given = fields.get(name)
    if given and str(given).strip().lower() != found.hex():
        why = "%(field)s is not the hash of the plain value next to it: send one of them"
        raise Unsendable("INVALID_HASH", name, why, field=name)
    fields[name] = found


def hash_email(value: Any) -> bytes:
    """Hash an ASCII address, whose lower case no language changes; raises Unsendable."""
    text = value.strip() if isinstance(value, str) else ""
    address = text.lower()
    local, _, domain = address.partition("@")
    if domain in _GOOGLE_MAIL:
        address = f"{local.partition('+')[0].replace('.', '')}@{domain}"
    if len(text) > _MAX_EMAIL or not text.isascii() or not _EMAIL.fullmatch(address):
        raise Unsendable("INVALID_EMAIL", "email", "email must be one address in ASCII characters")
    return sha256(address.encode()).digest()


def hash_phone(value: Any, country: str) -> bytes:
    """Hash a number in international form; one without + or 00 is of this country."""
    if not isinstance(value, str):
        value = str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
    text = value if value.isascii() else value.translate(_SEPARATORS)
    digits = text.encode("ascii", "replace").translate(None, _ASCII_SEPARATORS).decode()
    if digits.startswith(("+", "00")):
        number = _international(digits[1:] if digits[0] == "+" else digits[2:])
    else:
        number = _national(digits, country)
    if number is None:
        why = "phone must be a full number starting with +, or a number in the site's phone_country"
        raise Unsendable("INVALID_PHONE", "phone", why)
    return sha256(f"+{number}".encode()).digest()


def _international(digits: str) -> str | None:
    """The number with its country, without the zero of +90 (0) 532; None if it is none."""
    for size in (1, 2, 3):
        code = digits[:size]
        if code in _BY_CODE:
            trunk, lengths = _BY_CODE[code]
            national = digits[size:].removeprefix(trunk)
            if len(national) not in lengths or (national[0] == "0" and code != _ZERO_KEPT):
                return None
            digits = code + national
            break
    return digits if _INTERNATIONAL.fullmatch(digits) else None


def _national(digits: str, country: str) -> str | None:
    """The number with the code of its country; None if it is none, or reads two ways."""
    code, trunk, lengths = PHONE_COUNTRIES.get(country, _NO_PLAN)
    if not digits.isdecimal():
        return None
    if trunk and digits.startswith(trunk):
        within = digits.removeprefix(trunk)
        return code + within if len(within) in lengths and within[0] != "0" else None
    has_code = digits.startswith(code) and len(digits) - len(code) in lengths
    fits = len(digits) in lengths and (digits[0] != "0" or code == _ZERO_KEPT)
    if fits == has_code:
        return None
    return code + digits if fits else digits


def hide_clicks(text: str, clicks: Collection[str]) -> str:
    """The text with these click ids masked: a message about several rows may quote one of them."""
    hidden = _CLICK_IN_TEXT.sub(lambda word: str(mask_private(word[0])) if word[0] in clicks else word[0], text)
    return text if hidden == text else hidden  # a Message stays one
