"""The filters of templates, for plain data, and the totals that documents show, in decimals.

No message repeats a value, which may be personal.
"""

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import ROUND_HALF_UP, Decimal
from functools import wraps
from types import SimpleNamespace as Values
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from babel.dates import format_date
from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from zxingcpp import BarcodeFormat, create_barcode

from kesin.workloads.pdf.templating.pictures import picture_data

DEFAULT_LANGUAGE: Final = "tr"  # of documents without a language
_NBSP: Final = "\u00a0"
_MINUS: Final = "\u2212"
_MAX_QR_LENGTH: Final = 1000
_QR_DRAWING: Final = re.compile(r'<svg width="(\d+)".*<path d="([^"]+)"', re.DOTALL)


class Unprintable(ValueError):
    """A value cannot be printed; the message says what was expected, not the value."""


class NumberFormat(NamedTuple):
    """How a language formats numbers and dates."""

    group: str
    point: str
    money: str  # n: number, c: currency sign
    percent: str
    date: str
    locale: str  # of long dates


_FORMATS: Final = {
    "tr": NumberFormat(".", ",", f"n{_NBSP}c", "%n", "%d.%m.%Y", "tr"),
    "de": NumberFormat(".", ",", f"n{_NBSP}c", f"n{_NBSP}%", "%d.%m.%Y", "de"),
    "en": NumberFormat(",", ".", "cn", "n%", "%Y-%m-%d", "en_GB"),
}
_CURRENCY_SIGNS: Final = {"TRY": "₺", "EUR": "€", "USD": "$", "GBP": "£", "JPY": "¥"}
_DECIMAL_PLACES: Final = {"JPY": 0, "KRW": 0, "BHD": 3, "JOD": 3, "KWD": 3, "OMR": 3, "TND": 3}


def parse_amount(value: object) -> Decimal:
    """Convert a number to a decimal as it was written: 0.1 is exactly a tenth."""
    if isinstance(value, Decimal):
        number = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = Decimal(repr(value))
    elif isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,10})?", value):
        number = Decimal(value)
    else:
        raise Unprintable("expected a number, such as 1234.56")
    if not number.is_finite() or abs(number) >= 10**15:
        raise Unprintable("expected a number below 10^15")
    return number


def round_half_up(value: object, places: int = 2) -> Decimal:
    """Round half away from zero, as on invoices."""
    return parse_amount(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def number(value: object, places: int | None = None, *, lang: str = DEFAULT_LANGUAGE) -> str:
    """Format a number: 1.234,5; with its own places (at most six), or a fixed number of them."""
    exact = round_half_up(value, 6 if places is None else places)
    sign = _MINUS if exact < 0 else ""
    whole, _, fraction = f"{abs(exact):f}".partition(".")
    if places is None:
        fraction = fraction.rstrip("0")
    style = _number_format(lang)
    grouped = f"{int(whole):,}".replace(",", style.group)
    return sign + grouped + (style.point + fraction if fraction else "")


def money(value: object, currency: str = "TRY", *, sign: bool = True, lang: str = DEFAULT_LANGUAGE) -> str:
    """Format an amount: 1.234,56 ₺, or 1.234,56; a currency without a sign is shown by its code."""
    if not re.fullmatch(r"[A-Z]{3}", currency):
        raise Unprintable("expected a currency as three letters, such as TRY")
    digits = number(value, _DECIMAL_PLACES.get(currency, 2), lang=lang)
    if not sign or currency not in _CURRENCY_SIGNS:
        return f"{digits}{_NBSP}{currency}" if sign else digits
    minus = _MINUS if digits.startswith(_MINUS) else ""
    parts = {"n": digits.removeprefix(_MINUS), "c": _CURRENCY_SIGNS[currency]}
    return minus + "".join(parts.get(symbol, symbol) for symbol in _number_format(lang).money)


def percent(value: object, places: int | None = None, *, lang: str = DEFAULT_LANGUAGE) -> str:
    """Format a percentage: 20 becomes %20; the value is not a fraction."""
    return _number_format(lang).percent.replace("n", number(value, places, lang=lang))


def date(value: object, form: str = "short", *, lang: str = DEFAULT_LANGUAGE) -> str:
    """Format a date: 2026-11-15, or a time on that day, becomes 15.11.2026; long, 15 Kasım 2026."""
    moment, style = _parse_moment(value), _number_format(lang)
    if form == "long":
        return format_date(moment, form, locale=style.locale).replace(" ", _NBSP)
    if form != "short":
        raise Unprintable('expected "short" or "long"')
    return moment.strftime(style.date)


def datetime(value: object, zone: str | None = None, *, lang: str = DEFAULT_LANGUAGE) -> str:
    """Format a time: 15.11.2026 09:30; converted to ``zone`` if the value has a time zone."""
    moment = _parse_moment(value)
    if zone is not None and moment.tzinfo is not None:
        try:
            moment = moment.astimezone(ZoneInfo(zone))
        except (KeyError, OSError, ValueError) as problem:
            raise Unprintable("expected a time zone, such as Europe/Istanbul") from problem
        except OverflowError as problem:  # near the first or the last possible date
            raise Unprintable("expected a date such as 2026-11-15") from problem
    return moment.strftime(_number_format(lang).date + " %H:%M")


def upper_tr(value: object) -> str:
    """Convert to Turkish upper case: istanbul becomes İSTANBUL, ısparta ISPARTA."""
    return str(value).replace("i", "İ").replace("ı", "I").upper()


def lower_tr(value: object) -> str:
    """Convert to Turkish lower case: ISPARTA becomes ısparta, İSTANBUL istanbul."""
    return str(value).replace("İ", "i").replace("I", "ı").lower()


def iban(value: object) -> str:
    """Format an IBAN in groups of four."""
    letters = re.sub(r"\s", "", str(value)).upper()
    return _NBSP.join(letters[at : at + 4] for at in range(0, len(letters), 4))


_CSS_COLOUR: Final = re.compile(
    r"#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})|[a-zA-Z]{3,20}"
    r"|(?:rgb|hsl)a?\([0-9.,%/ deg-]{1,40}\)"
)
_CSS_LENGTH: Final = re.compile(r"0|-?[0-9]{1,5}(?:\.[0-9]{1,4})?(?:mm|cm|in|pt|px|em|rem|%)")


def css(value: object) -> str:
    """Return a colour or a length for use in a style; anything else could inject CSS."""
    text = str(value).strip()
    if not (_CSS_COLOUR.fullmatch(text) or _CSS_LENGTH.fullmatch(text)):
        raise Unprintable("expected a colour or a length, such as #0a5 or 12mm")
    return text


def css_text(value: object) -> Markup:
    """Format a text as a CSS string that no character ends: only letters and digits stay."""
    letters = (each if each.isalnum() else f"\\{ord(each):06x}" for each in str(value))
    return Markup('"' + "".join(letters).replace("\\000000", "\\00fffd") + '"')  # noqa: S704


def url(value: object) -> str:
    """Return a URL for a link: http, https or mailto, nothing executable."""
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
        raise Unprintable("expected an http, https or mailto URL")
    return text


def image(value: object) -> str:
    """Return an image as a data: URI; SVG is rejected, because it can refer to other files."""
    text = str(value)
    if picture_data(text) is None:
        raise Unprintable("expected a picture as data:image/png;base64,… (png, jpeg, gif, webp)")
    return text


def qr(value: object, label: object = None) -> Markup:
    """Return a QR code as inline SVG, with a text in its place; CSS sets its size."""
    text = str(value)
    if not 0 < len(text) <= _MAX_QR_LENGTH:
        raise Unprintable(f"expected 1…{_MAX_QR_LENGTH} characters for a QR code")
    encoding = {} if text.isascii() else {"eci": "UTF-8"}
    try:
        text.encode()
        code = create_barcode(text, BarcodeFormat.QRCode, ec_level="M", **encoding)
    except ValueError as problem:  # multi-byte characters exceed the capacity, or a lone surrogate
        raise Unprintable("expected a shorter text for a QR code, without lone surrogates") from problem
    drawing = _QR_DRAWING.search(code.to_svg(add_quiet_zones=False))
    if drawing is None or code.text != text:
        raise Unprintable("expected a text that a QR code can hold")
    side = int(drawing[1]) + 4  # with a margin of two squares
    title = Markup("<title>{}</title>").format(label) if label else ""
    box = f'viewBox="-2 -2 {side} {side}" class="qr"'
    return Markup(f'<svg {box}>{title}<path d="{drawing[2]}"/></svg>')  # noqa: S704  # escaped


def _number_format(lang: str) -> NumberFormat:
    return _FORMATS.get(lang.partition("-")[0].lower(), _FORMATS["en"])


def _parse_moment(value: object) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001  # a day has no zone
    if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d(?:$|[T ])", value, re.ASCII):
        with suppress(ValueError):
            return dt.datetime.fromisoformat(value)
    raise Unprintable("expected a date such as 2026-11-15 or 2026-11-15T09:30:00+03:00")


def _localised(function: Callable[..., str]) -> Callable[..., str]:
    @pass_context
    @wraps(function)
    def localised(context: Context, value: object, *options: Any, **named: Any) -> str:
        lang = context.get("lang", DEFAULT_LANGUAGE)
        return function(value, *options, **{"lang": lang} | named)

    return localised


_IN_A_LANGUAGE: Final = (number, money, percent, date, datetime)
_IN_ANY_LANGUAGE: Final = (upper_tr, lower_tr, iban, css, css_text, url, image, qr)
FILTERS: Final[dict[str, Callable[..., Any]]] = {
    **{each.__name__: _localised(each) for each in _IN_A_LANGUAGE},
    **{each.__name__: each for each in _IN_ANY_LANGUAGE},
}


_ONES: Final = ("", "bir", "iki", "üç", "dört", "beş", "altı", "yedi", "sekiz", "dokuz")
_TENS: Final = (
    "", "on", "yirmi", "otuz", "kırk", "elli", "altmış", "yetmiş", "seksen", "doksan",
)  # fmt: skip
_THOUSANDS: Final = ("", "bin", "milyon", "milyar", "trilyon")
_CURRENCY_WORDS: Final = {
    "TRY": ("Türk lirası", "kuruş"),
    "EUR": ("avro", "sent"),
    "USD": ("ABD doları", "sent"),
    "GBP": ("İngiliz sterlini", "peni"),
}


def in_words(value: object, currency: str = "TRY") -> str:
    """Spell an amount: *bin iki yüz Türk lirası elli kuruş*; '' for a currency without words."""
    if currency not in _CURRENCY_WORDS:
        return ""
    exact = round_half_up(value)
    unit, subunit = _CURRENCY_WORDS[currency]
    whole, cents = divmod(int(abs(exact) * 100), 100)
    text = f"{spell_number(whole)} {unit}" + (f" {spell_number(cents)} {subunit}" if cents else "")
    return f"eksi {text}" if exact < 0 else text


def spell_number(number: int) -> str:
    """Spell an integer in Turkish; a thousand is *bin*, not *bir bin*."""
    if not 0 <= number < 1000 ** len(_THOUSANDS):
        raise Unprintable("expected a number below 10^15")
    if number == 0:
        return "sıfır"
    words: list[str] = []
    for power in reversed(range(len(_THOUSANDS))):
        group = number // 1000**power % 1000
        hundreds, rest = divmod(group, 100)
        group_words = [_ONES[hundreds] if hundreds > 1 else "", "yüz" if hundreds else ""]
        group_words += [_TENS[rest // 10], _ONES[rest % 10]]
        if group:
            words += [] if power == 1 and group == 1 else group_words
            words.append(_THOUSANDS[power])
    return " ".join(word for word in words if word)


Object = Mapping[str, Any]


def invoice_sums(lines: Sequence[Object], stated: object = None) -> Values:
    """Sum up lines rounded to cents, VAT once per rate; another ``stated`` total is an error."""
    invoice_lines = []
    bases: dict[Decimal, Decimal] = {}
    for item in lines:
        gross = round_half_up(parse_amount(item["quantity"]) * parse_amount(item["unit_price"]))
        discount = round_half_up(gross * parse_amount(item.get("discount_percent", 0)) / 100)
        net = gross - discount
        invoice_lines.append(Values(item=item, gross=gross, discount=discount, net=net))
        rate = parse_amount(item["vat_percent"]).normalize()
        bases[rate] = bases.get(rate, Decimal(0)) + net
    vat = [Values(rate=rate, base=base, tax=round_half_up(base * rate / 100)) for rate, base in sorted(bases.items())]
    net = sum((line.net for line in invoice_lines), Decimal(0))
    tax = sum((vat_total.tax for vat_total in vat), Decimal(0))
    if stated is not None and round_half_up(stated) != net + tax:
        raise Unprintable("the lines do not add up to the stated total")
    return Values(
        lines=invoice_lines,
        gross=sum((line.gross for line in invoice_lines), Decimal(0)),
        discount=sum((line.discount for line in invoice_lines), Decimal(0)),
        net=net,
        vat=vat,
        tax=tax,
        total=net + tax,
    )


_TYPE_MM: Final = (1.7, 3.0)  # smallest and largest on paper
_CHARACTER_WIDTH: Final = 0.66  # of its height, on average
_MM2: Final = Decimal(1_000_000)


def cutting_sums(boards: Sequence[Object]) -> Values:
    """Prepare the boards for drawing and compute totals; a part off its board is an error."""
    drawn_boards = [_draw_board(board) for board in boards]
    band_mm: Counter[str] = Counter()
    board_area = part_area = offcut_area = Decimal(0)
    for board in drawn_boards:
        board_area += _area(board.item) * board.times
        part_area += _total_area(board.parts) * board.times
        offcut_area += _total_area(board.offcuts) * board.times
        for part in board.parts:
            for band, x1, y1, x2, y2 in part.bands:
                band_mm[band] += round((abs(x2 - x1) + abs(y2 - y1)) * board.times)
    return Values(
        boards=drawn_boards,
        board_count=sum(board.times for board in drawn_boards),
        part_count=sum(board.times * len(board.parts) for board in drawn_boards),
        board_m2=board_area / _MM2,
        part_m2=part_area / _MM2,
        offcut_m2=offcut_area / _MM2,
        yield_percent=_share(part_area, board_area),
        bands=tuple((band, Decimal(mm) / 1000) for band, mm in sorted(band_mm.items())),  # metres
    )


def _draw_board(item: Object) -> Values:
    """Return a board and its pieces; lengths are millimetres of the board."""
    length, width = float(item["length_mm"]), float(item["width_mm"])
    unit = max(length / 174, width / 150)  # so that it fits a drawing of 174 × 150 mm
    parts, offcuts = (
        [_draw_piece(entry, length, width, unit) for entry in item.get(kind, ())] for kind in ("parts", "offcuts")
    )
    return Values(
        item=item,
        length=length,
        width=width,
        times=int(item.get("count", 1)),  # number of equal boards
        unit=unit,  # millimetres of the board per millimetre on paper
        parts=parts,
        offcuts=offcuts,
        yield_percent=_share(_total_area(parts), _area(item)),
    )


def _draw_piece(item: Object, board_length: float, board_width: float, unit: float) -> Values:
    x, y = float(item["x_mm"]), float(item["y_mm"])
    length, width = float(item["length_mm"]), float(item["width_mm"])
    if x + length > board_length + 0.01 or y + width > board_width + 0.01:
        raise Unprintable("a part or an offcut is not on its board")
    upright = width > length * 1.25
    along, across = (width, length) if upright else (length, width)
    label = str(item.get("label", ""))
    size = f"{length:.0f} × {width:.0f}"
    small = _fitting_type(size, along, across / 2.9, unit)
    letter = _fitting_type(label, along, across / (2.9 if small else 1.5), unit)
    if not letter:
        small, letter = 0.0, _fitting_type(label, along, across / 1.5, unit)
    bands = item.get("bands", {})
    lines = {
        "up": (x, y, x + length, y),
        "lo": (x, y + width, x + length, y + width),
        "sx": (x, y, x, y + width),
        "dx": (x + length, y, x + length, y + width),
    }
    return Values(
        item=item,
        x=x,
        y=y,
        length=length,
        width=width,
        letter=letter,  # type size of the label; 0: no space
        small=min(small, letter),  # type size of the dimensions below it; 0: no space
        upright=upright,  # written along the width
        bands=[(str(bands[side]), *line) for side, line in lines.items() if bands.get(side)],
    )


def _fitting_type(text: str, along: float, across: float, unit: float) -> float:
    """Return the largest type size that fits, within the limits; 0 if none does."""
    smallest, largest = (limit * unit for limit in _TYPE_MM)
    height = min(largest, across, 0.92 * along / (_CHARACTER_WIDTH * max(len(text), 1)))
    return round(height, 1) if text and height >= smallest else 0.0


def _area(item: Object) -> Decimal:
    return parse_amount(item["length_mm"]) * parse_amount(item["width_mm"])


def _total_area(pieces: Iterable[Values]) -> Decimal:
    return sum((_area(piece.item) for piece in pieces), Decimal(0))


def _share(part: Decimal, whole: Decimal) -> Decimal:
    return round_half_up(100 * part / whole, 1) if whole else Decimal(0)


def tally(counts: Mapping[str, int], order: Sequence[str]) -> Values:
    listed = [(name, int(counts.get(name, 0))) for name in order]
    total = sum(count for _, count in listed)
    shares = [Values(name=name, many=count, percent=_share(Decimal(count), Decimal(total))) for name, count in listed]
    return Values(total=total, shares=shares)


TEMPLATE_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    each.__name__: each for each in (invoice_sums, cutting_sums, tally, in_words)
}
