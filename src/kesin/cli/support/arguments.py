"""Arguments and options that several commands take."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from kesin.cli.support.errors import check_choice
from kesin.foundation.terminal import Yes, argument, confirm, flag, option
from kesin.lifecycle.errors import Category
from kesin.store.records import Definition, Filter
from kesin.workloads import lifecycles, workloads

__all__ = ["Yes", "argument", "confirm", "flag", "option"]  # which workloads have too


def complete_queues(incomplete: str) -> list[str]:
    """Complete the name of a workload's queue, for the shell; opens no store."""
    return [name for name in workloads() if name.startswith(incomplete)]


def complete_lifecycles(incomplete: str) -> list[str]:
    return [name for name in lifecycles() if name.startswith(incomplete)]


AsJson = Annotated[bool, flag("--json", "Print JSON for scripts.")]
QueueName = Annotated[str, argument("QUEUE", "The queue's name.", autocompletion=complete_queues)]
QueueNames = Annotated[
    list[str] | None, argument("QUEUE", "The queues; defaults to all in the store.", autocompletion=complete_queues)
]
LifecycleName = Annotated[
    str | None,
    option(
        "NAME",
        "The queue's lifecycle: a registered name, or module:attribute for your own.",
        "--lifecycle",
        autocompletion=complete_lifecycles,
    ),
]
Several = list[str] | None  # the values of an option that may be given several times
States = Annotated[Several, option("STATE", "Only jobs in this state; repeatable.")]
Tenants = Annotated[Several, option("TENANT", "Only jobs of this tenant (in oci: site); repeatable.")]
Codes = Annotated[Several, option("CODE", "Only jobs whose last error has this code; repeatable.")]
Categories = Annotated[Several, option("CATEGORY", "Only jobs whose last error has this category; repeatable.")]
TextPart = Annotated[
    str | None, option("TEXT", "Search by id, key, searchable field, title or part of an error message.")
]
Key = Annotated[str | None, option("KEY", "Only jobs with exactly this key.")]


class FilterOptions(NamedTuple):
    """The filter options as they were typed."""

    states: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    codes: Sequence[str] | None = None
    categories: Sequence[str] | None = None
    text: str | None = None
    key: str | None = None

    @property
    def any_given(self) -> bool:
        return any(given is not None and given != [] for given in self)

    def to_filter(self, names: Definition | None) -> Filter:
        """The filter for the store; a state or a category that does not exist is refused."""
        known = names.states if names else tuple(self.states or ())
        return Filter(
            states=tuple(check_choice("state", word, known) for word in self.states or ()),
            tenants=tuple(self.tenants) if self.tenants else None,
            codes=tuple(self.codes or ()),
            categories=tuple(check_category(word) for word in self.categories or ()),
            dedup_key=self.key,
            text=self.text,
        )


def check_category(word: str) -> str:
    """An error category, in any case of its letters."""
    return check_choice("error category", word.upper(), [category.value for category in Category])
