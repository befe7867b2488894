"""From options to a filter: which jobs a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kesin.cli.failures import check_choice

if TYPE_CHECKING:
    from kesin.store.records import Definition, Filter


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filter options as they were typed."""

    states: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    codes: Sequence[str] | None = None
    categories: Sequence[str] | None = None
    text: str | None = None
    key: str | None = None

    @property
    def given(self) -> bool:
        """Whether any was."""
        lists = (self.states, self.tenants, self.codes, self.categories)
        return any(lists) or self.text is not None or self.key is not None

    def checked(self, names: Definition | None) -> Filter:
        """As the store takes it; a state or a category that does not exist is refused."""
        from kesin.store.records import Filter

        known = names.states if names else tuple(self.states or ())
        return Filter(
            states=tuple(check_choice("state", one, known) for one in self.states or ()),
            tenants=tuple(self.tenants) if self.tenants else None,
            codes=tuple(self.codes or ()),
            categories=tuple(check_category(one) for one in self.categories or ()),
            dedup_key=self.key,
            text=self.text,
        )


def check_category(word: str) -> str:
    """An error category, whatever the case of its letters."""
    from kesin.lifecycle.errors import Category

    return check_choice("error category", word.upper(), [one.value for one in Category])
