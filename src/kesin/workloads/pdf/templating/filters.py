"""How values are put on paper: money, dates and letters as the reader's language writes them.

Every filter takes plain data, as it comes from JSON, and refuses what it cannot print; a message
never repeats the value, which may be somebody's.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from functools import wraps
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import segno
from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup

LANGUAGE: Final = "tr"  # of documents that name none
_NBSP: Final = "\u00a0"
_MINUS: Final = "\u2212"
_LARGEST: Final = Decimal(10) ** 15
_QR_LONGEST: Final = 1000


class Unprintable(ValueError):
    """A value that cannot be put on paper as asked; says what was expected, not what came."""


class Manners(NamedTuple):
    """What a language does with figures."""

    group: str
    point: str
    money: str  # n for the number, c for the sign
    percent: str
    date: str


_MANNERS: Final = {
    "tr": Manners(".", ",", f"n{_NBSP}c", "%n", "%d.%m.%Y"),
    "de": Manners(".", ",", f"n{_NBSP}c", f"n{_NBSP}%", "%d.%m.%Y"),
    "en": Manners(",", ".", "cn", "n%", "%Y-%m-%d"),
}
_SIGNS: Final = {"TRY": "₺", "EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥"}
_PLACES: Final = {"JPY": 0, "KRW": 0, "BHD": 3, "JOD": 3, "KWD": 3, "OMR": 3, "TND": 3}


def amount(value: object) -> Decimal:
    """A number as it was written: 0.1 is a tenth, not its nearest binary neighbour."""
    if isinstance(value, Decimal):
        number = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = Decimal(repr(value))
    elif isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,10})?", value):
        number = Decimal(value)
    else:
        raise Unprintable("expected a number, such as 1234.56")
    if not number.is_finite() or abs(number) >= _LARGEST:
        raise Unprintable("expected a number below 10^15")
    return number


def rounded(value: object, places: int = 2) -> Decimal:
    """Half goes up, away from zero, as on every invoice."""
    return amount(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def number(value: object, places: int | None = None, *, lang: str = LANGUAGE) -> str:
    """1.234,5; with as many places as it has (six at most), or exactly so many."""
    exact = rounded(value, 6 if places is None else places)
    sign = _MINUS if exact < 0 else ""
    whole, _, rest = f"{abs(exact):f}".partition(".")
    if places is None:
        rest = rest.rstrip("0")
    manners = _manners(lang)
    grouped = f"{int(whole):,}".replace(",", manners.group)
    return sign + grouped + (manners.point + rest if rest else "")


def money(value: object, currency: str = "TRY", *, lang: str = LANGUAGE) -> str:
    """1.234,56 ₺; a currency without a sign is named by its code."""
    if not re.fullmatch(r"[A-Z]{3}", currency):
        raise Unprintable("expected a currency as three letters, such as TRY")
    digits = number(value, _PLACES.get(currency, 2), lang=lang)
    sign = _SIGNS.get(currency)
    if sign is None:
        return f"{digits}{_NBSP}{currency}"
    minus = _MINUS if digits.startswith(_MINUS) else ""
    places = {"n": digits.removeprefix(_MINUS), "c": sign}
    return minus + "".join(places.get(one, one) for one in _manners(lang).money)


def percent(value: object, places: int | None = None, *, lang: str = LANGUAGE) -> str:
    """%20 of 20: a rate as people say it, not a fraction."""
    return _manners(lang).percent.replace("n", number(value, places, lang=lang))


def date(value: object, *, lang: str = LANGUAGE) -> str:
    """15.11.2026 of 2026-11-15 or of a moment on that day."""
    return _moment(value).strftime(_manners(lang).date)


def datetime(value: object, zone: str | None = None, *, lang: str = LANGUAGE) -> str:
    """15.11.2026 09:30, at the wall of a time zone if one is named and the moment has its own."""
    moment = _moment(value)
    if zone is not None and moment.tzinfo is not None:
        try:
            moment = moment.astimezone(ZoneInfo(zone))
        except (KeyError, OSError, ValueError) as problem:
            raise Unprintable("expected a time zone, such as Europe/Istanbul") from problem
        except OverflowError as problem:  # the first or the last day there is
            raise Unprintable("expected a date such as 2026-11-15") from problem
    return moment.strftime(_manners(lang).date + " %H:%M")


def upper_tr(value: object) -> str:
    """İSTANBUL of istanbul, ISPARTA of ısparta."""
    return str(value).replace("i", "İ").replace("ı", "I").upper()


def lower_tr(value: object) -> str:
    """And back: ısparta of ISPARTA, istanbul of İSTANBUL."""
    return str(value).replace("İ", "i").replace("I", "ı").lower()


def iban(value: object) -> str:
    """In groups of four, as it is read aloud."""
    letters = re.sub(r"\s", "", str(value)).upper()
    return _NBSP.join(letters[at : at + 4] for at in range(0, len(letters), 4))


_COLOUR: Final = re.compile(
    r"#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})|[a-zA-Z]{3,20}"
    r"|(?:rgb|hsl)a?\([0-9.,%/ deg-]{1,40}\)"
)
_LENGTH: Final = re.compile(r"0|-?[0-9]{1,5}(?:\.[0-9]{1,4})?(?:mm|cm|in|pt|px|em|rem|%)")


def css(value: object) -> str:
    """A colour or a length, which may stand in a style; anything else may be an attack on it."""
    text = str(value).strip()
    if not (_COLOUR.fullmatch(text) or _LENGTH.fullmatch(text)):
        raise Unprintable("expected a colour or a length, such as #0a5 or 12mm")
    return text


def css_text(value: object) -> Markup:
    """A text as a string of CSS, quotation marks included: for ``content`` in page margins.

    Whatever is no letter or digit is written by number, so that nothing of it can end the string,
    the style or the element; HTML's own escapes mean nothing there.
    """
    letters = (one if one.isalnum() else f"\\{ord(one):06x}" for one in str(value))
    return Markup('"' + "".join(letters).replace("\\000000", "\\00fffd") + '"')  # noqa: S704


def url(value: object) -> str:
    """An address to click on: http, https and mailto, nothing that runs."""
    text = str(value)
    if re.search(r"[\x00-\x20\x7f\\]", text) or len(text) > 2048:  # noqa: PLR2004
        raise Unprintable("expected a URL without spaces")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise Unprintable("expected a URL") from None
    if parts.scheme == "mailto" and "@" in parts.path and not parts.netloc:
        return text
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Unprintable("expected a URL of http, https or mailto")
    return text


def image(value: object) -> str:
    """A picture that is part of the data; drawings are refused, they can point elsewhere."""
    text = str(value)
    if not re.fullmatch(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}", text):
        raise Unprintable("expected a picture as data:image/png;base64,… (png, jpeg, gif, webp)")
    return text


def qr(value: object) -> Markup:
    """A QR code as a drawing in the page; CSS gives it its size."""
    text = str(value)
    if not 0 < len(text) <= _QR_LONGEST:
        raise Unprintable(f"expected 1…{_QR_LONGEST} characters for a QR code")
    try:
        code = segno.make(text, error="m", micro=False, encoding="utf-8")
    except ValueError as problem:  # letters that take several bytes, or are none
        raise Unprintable("expected less text for a QR code, without half characters") from problem
    drawing = code.svg_inline(omitsize=True, border=2, svgclass="qr", lineclass=None)
    return Markup(drawing)  # noqa: S704  # the text is in its squares, not in its letters


def _manners(lang: str) -> Manners:
    return _MANNERS.get(lang.partition("-")[0].lower(), _MANNERS["en"])


def _moment(value: object) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001  # a day has no zone
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d(?:$|[T ])", value, re.ASCII):
        try:
            return dt.datetime.fromisoformat(value)
        except ValueError:
            pass
    raise Unprintable("expected a date such as 2026-11-15 or 2026-11-15T09:30:00+03:00")


def _in_its_language(function: Callable[..., str]) -> Callable[..., str]:
    """The filter in the language of the document."""

    @pass_context
    @wraps(function)
    def written(context: Context, value: object, *options: Any, **named: Any) -> str:
        lang = context.get("lang", LANGUAGE)
        return function(value, *options, **{"lang": lang} | named)

    return written


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    **{one.__name__: _in_its_language(one) for one in (number, money, percent, date, datetime)},
    **{one.__name__: one for one in (upper_tr, lower_tr, iban, css, css_text, url, image, qr)},
}


_ONES: Final = ("", "bir", "iki", "üç", "dört", "beş", "altı", "yedi", "sekiz", "dokuz")
_TENS: Final = (
    "", "on", "yirmi", "otuz", "kırk", "elli", "altmış", "yetmiş", "seksen", "doksan",
)  # fmt: skip
_THOUSANDS: Final = ("", "bin", "milyon", "milyar", "trilyon")
_COINS: Final = {
    "TRY": ("Türk lirası", "kuruş"),
    "EUR": ("avro", "sent"),
    "USD": ("ABD doları", "sent"),
    "GBP": ("İngiliz sterlini", "peni"),
}


def in_words(value: object, currency: str = "TRY") -> str:
    """*bin iki yüz otuz dört Türk lirası elli altı kuruş*; empty for a currency without words."""
    if currency not in _COINS:
        return ""
    exact = rounded(value)
    large, small = _COINS[currency]
    whole, cents = divmod(int(abs(exact) * 100), 100)
    text = f"{spelled(whole)} {large}" + (f" {spelled(cents)} {small}" if cents else "")
    return f"eksi {text}" if exact < 0 else text


def spelled(number: int) -> str:
    """A whole number in Turkish words; a thousand is *bin*, not *bir bin*."""
    if not 0 <= number < 1000 ** len(_THOUSANDS):
        raise Unprintable("expected a number below 10^15")
    if number == 0:
        return "sıfır"
    words: list[str] = []
    for power in reversed(range(len(_THOUSANDS))):
        group = number // 1000**power % 1000
        hundreds, rest = divmod(group, 100)
        spoken = [_ONES[hundreds] if hundreds > 1 else "", "yüz" if hundreds else ""]
        spoken += [_TENS[rest // 10], _ONES[rest % 10]]
        if group:
            words += [] if power == 1 and group == 1 else spoken
            words.append(_THOUSANDS[power])
    return " ".join(word for word in words if word)
