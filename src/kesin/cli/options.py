"""Options and arguments that several commands share, so that they are spelled and told alike."""

from __future__ import annotations

from typing import Annotated

import typer


def known_queues(incomplete: str) -> list[str]:
    """The workloads' queues that begin so, for the shell: no store is opened at a key press."""
    from kesin.workloads import workloads

    return [name for name in workloads() if name.startswith(incomplete)]


def known_lifecycles(incomplete: str) -> list[str]:
    """The registered lifecycles that begin so, for the shell."""
    from kesin.cli.names import registry

    return [name for name in registry() if name.startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
QueueName = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="The queue's name.", autocompletion=known_queues),
]
QueueNames = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="QUEUE",
        help="The queues; all of the store if none is named.",
        autocompletion=known_queues,
    ),
]
LifecycleName = Annotated[
    str | None,
    typer.Option(
        "--lifecycle",
        metavar="NAME",
        help="The queue's lifecycle: a registered name, or module:attribute of your own.",
        autocompletion=known_lifecycles,
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
        "--category",
        metavar="CATEGORY",
        help="With a last error of this category; repeatable.",
    ),
]
TextPart = Annotated[
    str | None,
    typer.Option("--text", metavar="TEXT", help="With this in the error message, in any case."),
]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="With exactly this dedup key.")
]
