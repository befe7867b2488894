"""Arguments and options that several commands take."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from kesin.cli.support.errors import UsageError, check_choice
from kesin.cli.support.lifecycles import registered_lifecycles
from kesin.lifecycle.errors import Category
from kesin.store.records import Definition, Filter
from kesin.workloads import workloads


def complete_queues(incomplete: str) -> list[str]:
    """Complete the name of a workload's queue, for the shell; opens no store."""
    return [name for name in workloads() if name.startswith(incomplete)]


def complete_lifecycles(incomplete: str) -> list[str]:
    """Complete the name of a registered lifecycle, for the shell."""
    return [name for name in registered_lifecycles() if name.startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue's name.", autocompletion=complete_queues)
]

QueueNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="QUEUE",
        help="The queues; all of the store if none is named.",
        autocompletion=complete_queues,
    ),
]

LifecycleName = Annotated[
    str | None,
    typer.Option(
        "--lifecycle",
        metavar="NAME",
        help="The queue's lifecycle: a registered name, or module:attribute of your own.",
        autocompletion=complete_lifecycles,
    ),
]

States = Annotated[
    list[str] | None, typer.Option("--state", metavar="STATE", help="In this state; repeatable.")
]

Tenants = Annotated[
    list[str] | None, typer.Option("--tenant", metavar="TENANT", help="Of this tenant; repeatable.")
]

Codes = Annotated[
    list[str] | None,
    typer.Option("--code", metavar="CODE", help="With this last error code; repeatable."),
]

Categories = Annotated[
    list[str] | None,
    typer.Option(
        "--category", metavar="CATEGORY", help="With a last error of this category; repeatable."
    ),
]

TextPart = Annotated[
    str | None,
    typer.Option("--text", metavar="TEXT", help="With this in the error message, in any case."),
]

Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="With exactly this dedup key.")
]


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, why: str) -> None:
    """Ask whether to go on; without a terminal, require --yes."""
    if not sys.stdin.isatty():
        raise UsageError(f"{why}: add --yes")
    typer.confirm(question, abort=True, err=True)


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The filter options as they were typed."""

    states: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    codes: Sequence[str] | None = None
    categories: Sequence[str] | None = None
    text: str | None = None
    key: str | None = None

    @property
    def any_given(self) -> bool:
        """Whether any filter was given."""
        lists = (self.states, self.tenants, self.codes, self.categories)
        return any(lists) or self.text is not None or self.key is not None

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
