"""Options and arguments that several commands share, so that they are spelled and told alike."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
QueueNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUEUE", help="The queues; all of the store if none is named."),
]
LifecycleName = Annotated[
    str | None,
    typer.Option(
        "--lifecycle",
        metavar="NAME",
        help="The queue's lifecycle: a registered name, or module:attribute of your own.",
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
