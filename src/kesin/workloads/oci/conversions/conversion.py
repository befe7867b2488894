"""A conversion, checked before any claim: Google reports no failure of a script's row."""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final, Literal, Self

from kesin.engine.access.masking import MASK
from kesin.engine.access.sites import CURRENCIES
from kesin.foundation.messages import Message, MessageError
from kesin.foundation.text import json_number, storable
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.workloads.oci.conversions.actions import MAX_NAME, ConversionAction
from kesin.workloads.oci.conversions.amounts import DECIMALS, normalise_amount

ClickKind = Literal["gclid", "wbraid", "gbraid"]

SEAL_PREFIX: Final = "seal_"  # before a row's id, in everything a script sees
# Of several click ids, the first in this order is sent.
CLICK_KINDS: Final[tuple[ClickKind, ...]] = ("gclid", "wbraid", "gbraid")
# What a producer's row may hold.
CONSENT_FIELDS: Final = ("adUserData", "adPersonalization")
HASH_FIELDS: Final = ("hashedEmail", "hashedPhone")  # SHA-256, in lower-case hexadecimal
PLAIN_FIELDS: Final = ("email", "phone")  # in the same order
CONSENTS: Final = ("granted", "denied")
CONVERSION_FIELDS: Final = (
    *("externalId", "revision", *CLICK_KINDS, "conversionName", "conversionTime"),
    *("conversionValue", "conversionCurrency", *CONSENT_FIELDS, *HASH_FIELDS),
)
# What a producer may send in their place; `checked_row` turns it into those.
INPUT_FIELDS: Final = (*CONVERSION_FIELDS, *PLAIN_FIELDS, "consent")
MAX_FUTURE_S: Final = 3_600  # tolerates a wrong clock, not a wrong time zone
CLICK_LIFETIME_DAYS: Final = 90
DENIED: Final = "consent to send the data to Google is denied: the row is stored and never sent"
RETRACTED: Final = "the sale was retracted before it was sent: the row is stored and never sent"
TOO_OLD: Final = "the click is too old for Google"
PAST_WINDOW: Final = "the sale is older than the look-back window of its conversion action"
STAMPS: Final = ("conversion_at", "expires_at")  # that a conversion brings with it
MAX_VALUE: Final = Decimal(10) ** 12
MAX_EXTERNAL_ID: Final = 200
ONE_PER_CLICK_BRAID: Final = "ONE_PER_CLICK_CONVERSION_ACTION_NOT_PERMITTED_WITH_BRAID"  # Google's
MAX_LISTED_NAMES: Final = 10  # of a site's actions, in a message
MAX_REVISION: Final = 99
CLICK_ID: Final = re.compile(r"[A-Za-z0-9_-]{6,512}")  # never altered: each letter counts
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_HASH_OF_NOTHING: Final = hashlib.sha256().hexdigest()  # of a customer without that value
_LONG: Final = "%(field)s must be 6…512 letters, digits, '-' and '_', exactly as Google issued it"
_HASHED: Final = "%(field)s must be the SHA-256 of a value, in 64 hexadecimal digits"
_SAID: Final = "%(field)s must be granted or denied"
# What a field that a row may leave out has to be, and the problem if it is not.
_TEXTS: Final[dict[str, tuple[re.Pattern[str], str, str]]] = {
    **dict.fromkeys(CLICK_KINDS, (CLICK_ID, "INVALID_CLICK_ID_FORMAT", _LONG)),
    **dict.fromkeys(HASH_FIELDS, (re.compile(r"[0-9a-f]{64}"), "INVALID_HASH", _HASHED)),
    **dict.fromkeys(CONSENT_FIELDS, (re.compile("|".join(CONSENTS)), "INVALID_CONSENT", _SAID)),
}
_STORED: Final = ("externalId", "orderId", *CONVERSION_FIELDS[2:])  # beside a revision
_OLDEST_YEAR: Final = 2000
_NEWEST_YEAR: Final = 2999


class Unsendable(MessageError):
    """A row that cannot be sent to Google: the field, and what is wrong with it."""

    row: Mapping[str, Any] = {}  # what it says, if that was read

    def __init__(self, code: str, field: str, message: str, /, **values: object) -> None:
        super().__init__(message, **values)
        self.code = code
        self.field = field
        self.message = str(self)


Row = Mapping[str, Any]  # as a producer sends it
ParsedRow = Row | Unsendable  # a row, or why it cannot be read


def fields_of(row: ParsedRow) -> Row:
    """What the row says, as far as it can be read."""
    return row.row if isinstance(row, Unsendable) else row


@dataclass(frozen=True, slots=True)
class RowDefaults:
    """The site's values for what a row leaves out."""

    site: str
    zone: tzinfo | None  # None: a time needs an offset
    currency: str
    name: str = ""
    only_name: str | None = None  # the one that is taken; "": none until the site has one
    actions: Mapping[str, ConversionAction] = field(default_factory=dict)  # if any: only these
    consent: str = ""  # for what a row does not say; "": it stays unsaid
    consent_required: bool = False
    enhanced: bool = False  # identifiers are taken and sent
    phone_country: str = ""
    needs_click: bool = True  # an identifier alone does not do
    locale: str = ""  # of dates and amounts in files


@dataclass(frozen=True, slots=True)
class Conversion:
    """A sale, and the click it came from."""

    external_id: str
    order_id: str
    gclid: str  # "" if not set, like the next two
    wbraid: str
    gbraid: str
    name: str
    at: datetime  # with its offset
    value: Decimal
    currency: str
    revision: int = 1
    said: tuple[str, str] = ("", "")  # of CONSENT_FIELDS
    hashes: tuple[str, str] = ("", "")  # of HASH_FIELDS
    action: ConversionAction | None = None  # of the name; None: the site has no list of them

    @classmethod
    def parse(cls, row: Row, defaults: RowDefaults, *, now_us: int | None = None) -> Self:
        """Validate a producer's row; raises Unsendable. With ``now_us``, its time as well."""
        _refuse_masked(row)
        external_id = parse_id(row.get("externalId"))
        revision = _parse_revision(row.get("revision"))
        clicks = {kind: _parse_text(row, kind) for kind in CLICK_KINDS}
        kept = HASH_FIELDS if defaults.enhanced else ("", "")
        hashes = _parse_hash(row, kept[0]), _parse_hash(row, kept[1])
        if not any(clicks.values()) and (defaults.needs_click or not any(hashes)):
            if defaults.needs_click:
                why = Message("a gclid, wbraid or gbraid is required")
                raise Unsendable("MISSING_CLICK_ID", "gclid", why)
            why = Message("a gclid, wbraid, gbraid, email or phone is required")
            raise Unsendable("MISSING_IDENTIFIER", "gclid", why)
        name = _parse_name(row.get("conversionName"), defaults)
        action = defaults.actions.get(name)
        _refuse_braid(action, clicks)
        at = parse_time(row.get("conversionTime"), defaults.zone)
        if now_us is not None:
            _check_age(at, now_us, action.lookback_days if action else None)
        currency = parse_currency(row.get("conversionCurrency") or defaults.currency)
        value = parse_value(row.get("conversionValue"), currency)
        order_id = order_id_of(defaults.site, external_id, revision)
        return cls(
            external_id, order_id, **clicks, name=name, at=at, value=value, currency=currency,
            revision=revision, said=_parse_consent(row, defaults), hashes=hashes, action=action,
        )  # fmt: skip

    @classmethod
    def from_payload(cls, payload: Any, rules: RowDefaults, *, now_us: int | None = None) -> Self:
        """Parse a stored row by the site's rules, not its defaults; raises Unsendable."""
        if not isinstance(payload, dict):
            raise Unsendable("BAD_PAYLOAD", "payload", "the stored row is not a conversion")
        if payload.get("adUserData") == "denied":
            raise Unsendable("CONSENT_DENIED", "adUserData", DENIED)
        if payload.get("retracted"):
            raise Unsendable("RETRACTED", "externalId", RETRACTED)
        only_name = rules.only_name or None  # without one, the row keeps the name it was taken with
        rules = replace(rules, zone=None, currency="", name="", only_name=only_name, consent="")
        conversion = cls.parse(payload, rules)
        if now_us is not None:
            _check_age(conversion.at, now_us)
        return conversion

    @property
    def click(self) -> tuple[ClickKind, str] | None:
        """The click id to send, with its kind; None if only identifiers say who it was."""
        clicks = ((kind, getattr(self, kind)) for kind in CLICK_KINDS if getattr(self, kind))
        return next(clicks, None)

    @property
    def sent_identifiers(self) -> dict[str, str]:
        """The identifiers that go beside a gclid or alone; Google refused them beside a braid."""
        given = zip(HASH_FIELDS, self.hashes, strict=True) if self.gclid or not self.click else ()
        return {name: text for name, text in given if text}

    @property
    def action_id(self) -> str:
        """The id of its action; "": that of the credentials."""
        return self.action.id if self.action else ""

    @property
    def traces(self) -> tuple[str, ...]:
        """What Google recognises the click by: its id, or else the identifiers."""
        return (self.click[1],) if self.click else tuple(filter(None, self.hashes))

    @property
    def is_denied(self) -> bool:
        """Whether the person refused that the data go to Google: such a row is never sent."""
        return self.said[0] == "denied"

    @property
    def consent(self) -> dict[str, str]:
        return {name: text for name, text in zip(CONSENT_FIELDS, self.said, strict=True) if text}

    @property
    def at_us(self) -> int:
        return int(self.at.timestamp()) * SECOND_US

    @property
    def stamps(self) -> dict[str, int]:
        """The stamps of its row: when it was, and if its action says so, when it is too old."""
        days = self.action.lookback_days if self.action else 0
        end = {"expires_at": self.at_us + days * DAY_S * SECOND_US} if days else {}
        return {"conversion_at": self.at_us, **end}

    @property
    def key(self) -> str:
        """The dedup key within the site; a revision has its own key."""
        return key_of(self.external_id, self.revision)

    def payload(self) -> dict[str, Any]:
        values = (
            *(self.external_id, self.order_id, self.gclid, self.wbraid, self.gbraid, self.name),
            *(self.at.isoformat(), json_number(self.value), self.currency),
            *self.said,
            *self.hashes,
        )
        payload = {name: it for name, it in zip(_STORED, values, strict=True) if it != ""}
        return payload if self.revision == 1 else {**payload, "revision": self.revision}

    def script_item(self, job_id: str, zone: tzinfo, *, more: bool = False) -> dict[str, Any]:
        """The conversion as a script gets it: nine fields, and those of more columns."""
        return {
            "id": f"{SEAL_PREFIX}{job_id}",
            "orderId": self.order_id,
            **{kind: getattr(self, kind) for kind in CLICK_KINDS},
            "conversionName": self.name,
            "conversionTime": format_google_time(self.at.astimezone(zone)),
            "conversionValue": json_number(self.value),
            "conversionCurrency": self.currency,
            **({**self.consent, **self.sent_identifiers} if more else {}),
        }


def order_id_of(site_id: str, external_id: str, revision: int = 1) -> str:
    """The order id, by which Google counts a resend once; hashed: it refuses phone numbers."""
    key = "\x1f".join((site_id, external_id, str(revision)))
    return "k" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def key_of(external_id: str, revision: int = 1) -> str:
    """The dedup key; external ids have no control characters, so revisions cannot collide."""
    return external_id if revision == 1 else f"{external_id}\x1f{revision}"


def format_google_time(at: datetime) -> str:
    """Format a time as ``yyyy-mm-dd HH:mm:ss+HH:mm``."""
    return at.isoformat(sep=" ", timespec="seconds")


def parse_time(value: Any, zone: tzinfo | None) -> datetime:
    """Parse ISO 8601, to the second; a time without an offset is in the site's zone."""
    field = "conversionTime"
    if value is None or value == "":
        raise Unsendable("MISSING_TIME", field, "conversionTime is missing")
    at = _read_time(value.strip(), zone) if isinstance(value, str) else None
    if at is None:
        why = "conversionTime must be ISO 8601 with a time, such as 2026-03-01T14:05:00+03:00"
        raise Unsendable("INVALID_TIME_FORMAT", field, why)
    return at


def _read_time(text: str, zone: tzinfo | None) -> datetime | None:
    """The time with a fixed offset; None if it is none, or has none."""
    if not 12 <= len(text) <= 40 or not text.isascii():  # noqa: PLR2004  # a date alone is too short
        return None
    try:
        at = datetime.fromisoformat(text).replace(microsecond=0)
        at = at if at.tzinfo else at.replace(tzinfo=zone)
        offset, year = at.utcoffset(), at.astimezone(UTC).year
    except (OverflowError, ValueError):
        return None
    if not _OLDEST_YEAR <= year <= _NEWEST_YEAR or offset is None or offset.total_seconds() % 60:
        return None
    return at.replace(tzinfo=timezone(offset), fold=0)


def parse_value(raw: Any, currency: str) -> Decimal:
    """Parse a non-negative amount of money; text may use either decimal separator."""
    field, code = "conversionValue", "INVALID_CONVERSION_VALUE"
    if raw is None or raw == "":
        raise Unsendable(code, field, "conversionValue is missing")
    if isinstance(raw, bool) or not isinstance(raw, int | float | str | Decimal):
        raise Unsendable(code, field, "conversionValue must be a number")
    if isinstance(raw, float) and not math.isfinite(raw):
        raise Unsendable(code, field, "conversionValue must be a finite number")
    try:
        value = Decimal(normalise_amount(raw)) if isinstance(raw, str) else Decimal(str(raw))
    except InvalidOperation:
        why = Message("conversionValue must be an unambiguous number, such as 1500.75")
        raise Unsendable(code, field, why) from None
    if not value.is_finite() or not 0 <= value <= MAX_VALUE:
        raise Unsendable(code, field, "conversionValue must be in 0…%(most)s", most=MAX_VALUE)
    return value.quantize(Decimal(1).scaleb(-DECIMALS.get(currency, 2)), ROUND_HALF_UP)


def _parse_text(row: Row, name: str) -> str:
    """Parse a click id, a hash or a consent; "" if the row has none. Only click ids have a case."""
    if (value := row.get(name)) is None:
        return ""
    text = value.strip() if isinstance(value, str) else "?"
    text = text if name in CLICK_KINDS else text.lower()
    pattern, code, why = _TEXTS[name]
    if text and (not pattern.fullmatch(text) or text == _HASH_OF_NOTHING):
        raise Unsendable(code, name, why, field=name)
    return text


def _parse_hash(row: Row, name: str) -> str:
    """Parse a hash; bytes are one that was made here."""
    value = row.get(name)
    return value.hex() if isinstance(value, bytes) else _parse_text(row, name)


def _parse_consent(row: Row, defaults: RowDefaults) -> tuple[str, str]:
    """What the row says, or else the site; nothing is taken for granted that neither says."""
    user_data, personalization = (
        said if (said := row.get(name)) in CONSENTS else _parse_text(row, name) for name in CONSENT_FIELDS
    )
    said = user_data or defaults.consent, personalization or defaults.consent
    if defaults.consent_required and not all(said) and said[0] != "denied":
        name = CONSENT_FIELDS[said.index("")]
        why = "%(field)s is missing, and the site does not accept rows without consent"
        raise Unsendable("CONSENT_MISSING", name, why, field=name)
    return said


def _refuse_masked(row: Row) -> None:
    """Refuse a value that was masked when it was read: it would overwrite the real one."""
    for name, value in row.items():
        if isinstance(value, str) and MASK in value and name in CONVERSION_FIELDS:
            why = "%(field)s is masked: send the value itself, or leave it out"
            raise Unsendable("MASKED_VALUE", name, why, field=name)


def _check_age(at: datetime, now_us: int, lookback_days: int | None = None) -> None:
    seconds = now_us / SECOND_US - at.timestamp()
    if seconds < -MAX_FUTURE_S:
        why = "the conversion is more than %(n)s h in the future"
        raise Unsendable("TIME_IN_FUTURE", "conversionTime", why, n=MAX_FUTURE_S // 3_600)
    if seconds >= CLICK_LIFETIME_DAYS * DAY_S:
        raise Unsendable("EXPIRED", "conversionTime", TOO_OLD)
    if lookback_days and seconds >= lookback_days * DAY_S:
        raise Unsendable("EXPIRED", "conversionTime", PAST_WINDOW)


def _refuse_braid(action: ConversionAction | None, clicks: Mapping[ClickKind, str]) -> None:
    kind = next((kind for kind in CLICK_KINDS if clicks[kind]), "gclid")
    if action and action.counting == "ONE_PER_CLICK" and kind != "gclid":
        why = "%(name)s counts one conversion per click and cannot accept %(field)s: send a gclid"
        raise Unsendable(ONE_PER_CLICK_BRAID, kind, why, name=repr(action.name), field=kind)


def parse_id(value: Any, field: str = "externalId", code: str = "EXTERNAL_ID") -> str:
    """Parse an id of the producer; raises Unsendable."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None or value == "":
        raise Unsendable(f"MISSING_{code}", field, "%(field)s is missing", field=field)
    text = value.strip() if isinstance(value, str) else ""
    if not 1 <= len(text) <= MAX_EXTERNAL_ID or storable(text) != text or _CONTROL.search(text):
        why = "%(field)s must be one line of 1…%(most)s characters"
        raise Unsendable(f"INVALID_{code}", field, why, field=field, most=MAX_EXTERNAL_ID)
    return text


def _parse_revision(value: Any) -> int:
    if value is None or value == "":
        return 1
    if isinstance(value, str) and (digits := value.strip()).isdecimal():
        value = int(digits) if len(digits) < 4 else 0  # noqa: PLR2004
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_REVISION:
        why = "revision must be in 1…%(most)s"
        raise Unsendable("INVALID_REVISION", "revision", why, most=MAX_REVISION)
    return value


def _parse_name(given: Any, defaults: RowDefaults) -> str:
    if defaults.only_name == "":
        code = "UNKNOWN_CONVERSION_NAME" if given else "MISSING_CONVERSION_NAME"
        why = (
            "the site uploads to one conversion action and has no name for it: an admin must set "
            "it in the site's settings"
        )
        raise Unsendable(code, "conversionName", why)
    if not (value := given or defaults.name):
        raise Unsendable("MISSING_CONVERSION_NAME", "conversionName", "conversionName is missing")
    text = value.strip() if isinstance(value, str) else ""
    if not 1 <= len(text) <= MAX_NAME or not text.isprintable() or storable(text) != text:
        why = "conversionName must be one line of 1…%(most)s characters, as in Google Ads"
        raise Unsendable("INVALID_CONVERSION_NAME", "conversionName", why, most=MAX_NAME)
    if defaults.actions and text not in defaults.actions:
        names = [*map(repr, sorted(defaults.actions))]
        more = ["…"] if len(names) > MAX_LISTED_NAMES else []
        why = "conversionName is not one of the site's conversion actions: %(names)s"
        listed = ", ".join([*names[:MAX_LISTED_NAMES], *more])
        raise Unsendable("UNKNOWN_CONVERSION_NAME", "conversionName", why, names=listed)
    if text != (only := defaults.only_name or text):
        why = "the site uploads to one conversion action, %(name)s: send that name or none"
        raise Unsendable("UNKNOWN_CONVERSION_NAME", "conversionName", why, name=repr(only))
    return text


def parse_currency(value: Any) -> str:
    """Parse a currency in any case; raises Unsendable."""
    text = value.strip().upper() if isinstance(value, str) else ""
    if text not in CURRENCIES:
        why = Message("conversionCurrency must be a three-letter ISO 4217 code, such as TRY")
        raise Unsendable("INVALID_CURRENCY", "conversionCurrency", why)
    return text
