"""Normalisation of names and filters, so that they match the text that is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kesin.foundation.text import storable
from kesin.store.records import Filter


def normalise_names(names: Sequence[str] | None) -> list[str] | None:
    """Each name as the store writes it; None stays None."""
    return None if names is None else [storable(name) for name in names]


def normalise_filter(where: Filter) -> Filter:
    """The filter with every text as the store writes it."""
    tenants = normalise_names(where.tenants)
    return replace(
        where,
        states=tuple(normalise_names(where.states) or ()),
        tenants=None if tenants is None else tuple(tenants),
        codes=tuple(normalise_names(where.codes) or ()),
        categories=tuple(normalise_names(where.categories) or ()),
        dedup_key=None if where.dedup_key is None else storable(where.dedup_key),
        text=None if where.text is None else storable(where.text),
        contains=None if where.contains is None else storable(where.contains),
        search=None if where.search is None else storable(where.search),
    )
