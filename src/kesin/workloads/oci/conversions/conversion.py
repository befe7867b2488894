"""One conversion: read from whatever a producer sends, checked once, spelled for each channel.

What cannot be sent is found here, before anything claims it: a row that fails at Google through the
script is a row nobody hears of. Click ids are never altered: Google compares them letter by letter.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final, Literal, Self

from kesin.foundation.text import storable
from kesin.lifecycle.budget import SECOND_US

Kind = Literal["gclid", "wbraid", "gbraid"]

SEAL: Final = "seal_"  # before a row's id, wherever a script sees it
CLICKS: Final[tuple[Kind, ...]] = ("gclid", "wbraid", "gbraid")  # of several, the first is sent
FUTURE_S: Final = 3_600  # a clock may be wrong by so much, a time zone is wrong by more
MOST_VALUE: Final = Decimal(10) ** 12
MAX_EXTERNAL_ID: Final = 200
MAX_NAME: Final = 100
MAX_REVISION: Final = 99
_CLICK: Final = re.compile(r"[A-Za-z0-9_-]{6,512}")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_GROUPED: Final = re.compile(r"[0-9]{1,3}([.,])(?:[0-9]{2,3}\1)*[0-9]{3}")  # 1.500.000, 15,00,000
_OLDEST_YEAR: Final = 2000
_LAST_YEAR: Final = 2999
_WITHOUT_CENTS: Final = frozenset(
    [
        "BIF",
        "CLP",
        "DJF",
        "GNF",
        "ISK",
        "JPY",
        "KMF",
        "KRW",
        "PYG",
        "RWF",
        "UGX",
        "UYI",
        "VND",
        "VUV",
        "XAF",
        "XOF",
        "XPF",
    ]
)
_WITH_MILLS: Final = frozenset(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"])


class Unsendable(ValueError):
    """A row that cannot go to Google: which field, and what is wrong with it."""

    def __init__(self, code: str, field: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a site adds to a row that does not say it."""

    site: str
    zone: tzinfo | None  # None: a time without an offset is wrong
    currency: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A sale, and the click it came from."""

    external_id: str
    order_id: str
    gclid: str  # "" where there is none, like the two below
    wbraid: str
    gbraid: str
    name: str
    at: datetime  # with its offset
    value: Decimal
    currency: str
    revision: int = 1

    @classmethod
    def read(cls, row: Mapping[str, Any], site: Defaults, *, now_us: int | None = None) -> Self:
        """Check a producer's row; raises Unsendable with the first thing that is wrong."""
        external_id = _external_id(row.get("externalId"))
        revision = _revision(row.get("revision"))
        clicks = {kind: _click(row.get(kind), kind) for kind in CLICKS}
        if not any(clicks.values()):
            raise Unsendable("MISSING_CLICK_ID", "gclid", "one of gclid, wbraid, gbraid is needed")
        name = _name(row.get("conversionName") or site.name)
        at = read_time(row.get("conversionTime"), site.zone)
        if now_us is not None and at.timestamp() > now_us / SECOND_US + FUTURE_S:
            raise Unsendable(
                "TIME_IN_FUTURE", "conversionTime", "the conversion lies in the future"
            )
        currency = _currency(row.get("conversionCurrency") or site.currency)
        value = read_value(row.get("conversionValue"), currency)
        order_id = order_id_of(site.site, external_id, revision)
        return cls(
            external_id, order_id, **clicks, name=name, at=at, value=value, currency=currency,
            revision=revision,
        )  # fmt: skip

    @classmethod
    def of(cls, payload: Any, site_id: str) -> Self:
        """From a stored payload, which says everything itself; raises Unsendable."""
        if not isinstance(payload, dict):
            raise Unsendable("BAD_PAYLOAD", "payload", "the stored row is no conversion")
        return cls.read(payload, Defaults(site_id, None, ""))

    @property
    def click(self) -> tuple[Kind, str]:
        """The one click id that is sent."""
        return next((kind, getattr(self, kind)) for kind in CLICKS if getattr(self, kind))

    @property
    def at_us(self) -> int:
        """When, in microseconds since 1970."""
        return int(self.at.timestamp()) * SECOND_US

    @property
    def key(self) -> str:
        """What it is known by within its site; a revision is a conversion of its own."""
        return key_of(self.external_id, self.revision)

    def payload(self) -> dict[str, Any]:
        """As it is stored."""
        told: dict[str, Any] = {
            "externalId": self.external_id,
            "orderId": self.order_id,
            **{kind: getattr(self, kind) for kind in CLICKS if getattr(self, kind)},
            "conversionName": self.name,
            "conversionTime": self.at.isoformat(),
            "conversionValue": number(self.value),
            "conversionCurrency": self.currency,
        }
        return told if self.revision == 1 else {**told, "revision": self.revision}

    def script_item(self, job_id: str, zone: tzinfo) -> dict[str, Any]:
        """As the script gets it: always the same nine fields."""
        return {
            "id": f"{SEAL}{job_id}",
            "orderId": self.order_id,
            "gclid": self.gclid,
            "wbraid": self.wbraid,
            "gbraid": self.gbraid,
            "conversionName": self.name,
            "conversionTime": google_time(self.at.astimezone(zone)),
            "conversionValue": number(self.value),
            "conversionCurrency": self.currency,
        }


def order_id_of(site_id: str, external_id: str, revision: int = 1) -> str:
    """The same on every channel and every try, so that Google counts a resend once.

    A hash, because an external id may be a phone number and Google refuses those.
    """
    told = "\x1f".join((site_id, external_id, str(revision)))
    return "k" + hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def key_of(external_id: str, revision: int = 1) -> str:
    """The dedup key; an external id holds no control character, so the two cannot be confused."""
    return external_id if revision == 1 else f"{external_id}\x1f{revision}"


def google_time(at: datetime) -> str:
    """``yyyy-mm-dd HH:mm:ss+HH:mm``."""
    return at.isoformat(sep=" ", timespec="seconds")


def number(value: Decimal) -> int | float:
    """As JSON spells it."""
    return int(value) if value == value.to_integral_value() else float(value)


def read_time(given: Any, zone: tzinfo | None) -> datetime:
    """ISO 8601, to the second; without an offset it is the site's time."""
    field = "conversionTime"
    if given is None or given == "":
        raise Unsendable("MISSING_TIME", field, "conversionTime is missing")
    wrong = Unsendable(
        "INVALID_TIME_FORMAT",
        field,
        "conversionTime must be ISO 8601 with a time of day, 2026-03-01T14:05:00+03:00",
    )
    text = given.strip() if isinstance(given, str) else ""
    if not 12 <= len(text) <= 40 or not text.isascii():  # noqa: PLR2004  # no date alone
        raise wrong
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise wrong from None
    if at.tzinfo is None:
        if zone is None:
            raise wrong
        at = at.replace(tzinfo=zone)
    at = at.replace(microsecond=0)
    try:
        offset = at.utcoffset()
        year = at.astimezone(UTC).year
    except (OverflowError, ValueError):
        raise wrong from None
    if not _OLDEST_YEAR <= year <= _LAST_YEAR or offset is None or offset.total_seconds() % 60:
        raise wrong
    return datetime.fromisoformat(at.isoformat())  # the offset itself, whatever gave it


def read_value(given: Any, currency: str) -> Decimal:
    """An amount of money, not negative; text may be spelled as people here or there do."""
    field, code = "conversionValue", "INVALID_CONVERSION_VALUE"
    if given is None or given == "":
        raise Unsendable(code, field, "conversionValue is missing")
    if isinstance(given, bool) or not isinstance(given, int | float | str | Decimal):
        raise Unsendable(code, field, "conversionValue must be a number")
    if isinstance(given, float) and not math.isfinite(given):
        raise Unsendable(code, field, "conversionValue must be a finite number")
    try:
        value = Decimal(_plain(given)) if isinstance(given, str) else Decimal(str(given))
    except InvalidOperation:
        raise Unsendable(
            code, field, "conversionValue must be a number that reads one way, 1500.75"
        ) from None
    if not value.is_finite() or not 0 <= value <= MOST_VALUE:
        raise Unsendable(code, field, f"conversionValue must lie in 0…{MOST_VALUE}")
    digits = 0 if currency in _WITHOUT_CENTS else 3 if currency in _WITH_MILLS else 2
    return value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)


def _plain(text: str) -> str:
    """``1.500,75``, ``1,500.75`` and ``1500,75`` as ``1500.75``.

    ``1.500`` is a thousand times more here than there: it is refused, not guessed.
    """
    text = text.strip().replace(" ", "").replace("\u00a0", "")
    last = max(text.rfind(","), text.rfind("."))
    sign, whole, part = text[last : last + 1], text[: max(last, 0)], text[last + 1 :]
    if last < 0:
        plain = text
    elif sign in whole:
        plain = _whole(text)
    elif whole.isdecimal():
        if len(part) == 3 and whole != "0":  # noqa: PLR2004
            raise InvalidOperation
        plain = f"{whole}.{part}"
    else:
        plain = f"{_whole(whole)}.{part}"
    if not _NUMBER.fullmatch(plain):
        raise InvalidOperation
    return plain


def _whole(text: str) -> str:
    """Digits in groups, without what parts them; a date or a slip has other groups."""
    if not _GROUPED.fullmatch(text):
        raise InvalidOperation
    return text.replace(".", "").replace(",", "")


def _external_id(given: Any) -> str:
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    if given is None or given == "":
        raise Unsendable("MISSING_EXTERNAL_ID", "externalId", "externalId is missing")
    text = given.strip() if isinstance(given, str) else ""
    fits = 1 <= len(text) <= MAX_EXTERNAL_ID and storable(text) == text
    if not fits or any(ord(sign) < 32 for sign in text):  # noqa: PLR2004  # control characters
        raise Unsendable(
            "INVALID_EXTERNAL_ID",
            "externalId",
            f"externalId must be one line of 1…{MAX_EXTERNAL_ID} characters",
        )
    return text


def _revision(given: Any) -> int:
    if given is None or given == "":
        return 1
    if isinstance(given, str) and (digits := given.strip()).isdecimal():
        given = int(digits) if len(digits) < 4 else 0  # noqa: PLR2004
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_REVISION:
        raise Unsendable("INVALID_REVISION", "revision", f"revision must lie in 1…{MAX_REVISION}")
    return given


def _click(given: Any, kind: Kind) -> str:
    if given is None:
        return ""
    text = given.strip() if isinstance(given, str) else "?"
    if text and not _CLICK.fullmatch(text):
        raise Unsendable(
            "INVALID_CLICK_ID_FORMAT",
            kind,
            f"{kind} must be 6…512 letters, digits, '-' and '_', exactly as Google gave it",
        )
    return text


def _name(given: Any) -> str:
    if not given:
        raise Unsendable("MISSING_CONVERSION_NAME", "conversionName", "conversionName is missing")
    text = given.strip() if isinstance(given, str) else ""
    if not 1 <= len(text) <= MAX_NAME or not text.isprintable() or storable(text) != text:
        raise Unsendable(
            "INVALID_CONVERSION_NAME",
            "conversionName",
            f"conversionName must be one line of 1…{MAX_NAME} characters, as in Google Ads",
        )
    return text


def _currency(given: Any) -> str:
    text = given.strip().upper() if isinstance(given, str) else ""
    if not _CURRENCY.fullmatch(text):
        raise Unsendable(
            "INVALID_CURRENCY", "conversionCurrency", "conversionCurrency is three letters, TRY"
        )
    return text
