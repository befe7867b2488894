"""What commands print with, and how they show what the store keeps as text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    typist,
    visible,
    visible_lines,
    warn,
)

Advance = Callable[[int], None]  # so many more are done

__all__ = [
    "NOTHING",
    "WHOLE",
    "Advance",
    "Cell",
    "bars",
    "cell",
    "clock_time",
    "console",
    "counting",
    "error_console",
    "lasting",
    "on_terminal",
    "print_table",
    "rich_table",
    "say",
    "say_json",
    "tally",
    "typist",
    "visible",
    "visible_lines",
    "warn",
]


@contextmanager
def bars(*, shown: bool, of_bytes: bool = False) -> Iterator[Callable[[str, int], Advance]]:
    """Bars on a terminal, each asked for by its name and its end; none where nobody looks."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _what, _total: lambda _more: None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TimeRemainingColumn,
    )

    count = DownloadColumn() if of_bytes else MofNCompleteColumn()
    columns = ("{task.description}", BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=error_console(), transient=True) as progress:

        def bar(what: str, total: int) -> Advance:
            task = progress.add_task(what, total=total)
            return lambda more: progress.advance(task, more)

        yield bar


@contextmanager
def counting(what: str, total: int, *, shown: bool) -> Iterator[Advance]:
    """One bar over so many of something."""
    with bars(shown=shown) as bar:
        yield bar(what, total)
