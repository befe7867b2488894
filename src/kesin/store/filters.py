"""Normalisation of names and filters, so that they match the text that is stored."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from kesin.foundation.text import storable
from kesin.store.records import Filter


def normalise_names(names: Sequence[str] | None) -> list[str] | None:
    """Each name as the store writes it; None stays None."""
    return None if names is None else [storable(name) for name in names]


def normalise_filter(where: Filter) -> Filter:
    """The filter with every text as the store writes it."""
    names = [field.name for field in fields(where)]
    return replace(where, **{name: _stored(getattr(where, name)) for name in names})


def _stored(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    return tuple(map(storable, value)) if isinstance(value, Iterable) else value
