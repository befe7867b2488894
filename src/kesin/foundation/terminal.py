"""What a command prints: tables for people, plain columns for pipes, JSON for scripts.

Text that came from outside (payloads, messages, names) is made visible first: a job must not be
able to move the cursor of whoever looks at it. Workloads print the same way, so this lies below.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from kesin.foundation.clock import iso

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NOTHING: Final = "—"
WHOLE: Final = frozenset({"id", "at", "moved", "seq"})  # columns that are never broken
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))

Cell = str | int | float | None


def on_terminal() -> bool:
    """Whether a person is likely to read standard output."""
    return sys.stdout.isatty()


def console() -> Console:
    """Rich, on standard output."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def error_console() -> Console:
    """Rich, on standard error: for progress, which is no part of the answer."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def say(text: str = "") -> None:
    """A line of the answer."""
    print(text, flush=True)  # noqa: T201  # this is the command line


def warn(text: str) -> None:
    """A line beside the answer."""
    sys.stderr.write(f"kesin: {text}\n")
    sys.stderr.flush()


def say_json(value: Any, *, line: bool = False) -> None:
    """A JSON document, or one line of NDJSON."""
    ascii_only = (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
    text = json.dumps(value, ensure_ascii=ascii_only, indent=None if line else 2)
    print(text, flush=line)  # noqa: T201


def visible(text: str) -> str:
    """The text with control characters spelled out."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def visible_lines(text: str) -> str:
    """Likewise for text of several lines."""
    return "\n".join(visible(line) for line in text.split("\n"))


def cell(value: Cell) -> str:
    """A value as it stands in a table."""
    return NOTHING if value is None or value == "" else visible(str(value))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str = "", empty: str = ""
) -> None:
    """A table on a terminal, aligned columns otherwise; ``empty`` is said when there is no row."""
    body = [[cell(value) for value in row] for row in rows]
    if not body and empty:
        say(empty)
        return
    if on_terminal():
        console().print(rich_table(columns, body, title=title))
        return
    if title:
        say(title)
    lines = [[name.upper() for name in columns], *body]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        say("  ".join(padded).rstrip())


def rich_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str = "") -> Table:
    """The same as something Rich can draw, and draw again."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    body = [[cell(value) for value in row] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for at, name in enumerate(columns):
        numbers = bool(body) and all(row[at].isdigit() or row[at] == NOTHING for row in body)
        side: Literal["left", "right"] = "right" if numbers else "left"
        table.add_column(name, justify=side, overflow="fold", no_wrap=name in WHOLE)
    for row in body:
        table.add_row(*(Text(text) for text in row))
    return table


def clock_time(time_us: int | None) -> str:
    """A time for people: UTC to the millisecond."""
    text = iso(time_us)
    return NOTHING if text is None else text[:-4].replace("T", " ")


def lasting(seconds: float) -> str:
    """``5400`` → ``1.5 h``: short, for tables."""
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def counted(n: int, thing: str) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def tally(counts: dict[str, int], join: str = " · ") -> str:
    """``ready 3 · done 12``, without the zeros."""
    return join.join(f"{name} {n}" for name, n in counts.items() if n)


def typist() -> str:
    """Who the audit log says did it: whoever types."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:{os.getuid()}"


def examples(*lines: str) -> str:
    """Command lines as they are typed; each one stands on a line of its own, however narrow."""
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])
