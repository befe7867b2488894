"""Names and filters as the stored text is spelled: what is asked for is what was kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kesin.foundation.text import storable
from kesin.store.records import Filter


def all_storable(names: Sequence[str] | None) -> list[str] | None:
    """Each name as it is stored; None stays None."""
    return None if names is None else [storable(name) for name in names]


def clean(where: Filter) -> Filter:
    """The filter as the stored text is spelled."""
    tenants = all_storable(where.tenants)
    return replace(
        where,
        states=tuple(all_storable(where.states) or ()),
        tenants=None if tenants is None else tuple(tenants),
        codes=tuple(all_storable(where.codes) or ()),
        categories=tuple(all_storable(where.categories) or ()),
        dedup_key=None if where.dedup_key is None else storable(where.dedup_key),
        text=None if where.text is None else storable(where.text),
        contains=None if where.contains is None else storable(where.contains),
    )
