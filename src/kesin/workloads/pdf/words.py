"""Amounts in words, as Turkish invoices spell them out so that no figure can be added."""

from __future__ import annotations

from typing import Final

from kesin.workloads.pdf.filters import Unprintable, rounded

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
