"""What commands print with, and how they show what the store keeps as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kesin.foundation.terminal import (
    NOTHING,
    WHOLE,
    Cell,
    cell,
    clock_time,
    console,
    error_console,
    lasting,
    on_terminal,
    print_table,
    rich_table,
    say,
    say_json,
    tally,
    visible,
    visible_lines,
    warn,
)

__all__ = [
    "NOTHING",
    "WHOLE",
    "Cell",
    "cell",
    "clock_time",
    "console",
    "counting",
    "decoded",
    "error_console",
    "lasting",
    "on_terminal",
    "print_table",
    "rich_table",
    "say",
    "say_json",
    "tally",
    "visible",
    "visible_lines",
    "warn",
]


def decoded(text: str | None) -> Any:
    """JSON text of the store as a value; text that is none stays as it is."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


@contextmanager
def counting(what: str, total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar over so many of something, on a terminal; told how many more are done."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=error_console(), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)
