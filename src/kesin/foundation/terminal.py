"""Options and output of commands; control characters in foreign text are escaped for terminals."""

import getpass
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EMPTY_CELL: Final = "—"
UNBROKEN_COLUMNS: Final = frozenset({"id", "at", "moved", "seq"})  # columns that are never wrapped
_CONTROL_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_NUMBER = re.compile(rf"[\d,]+$|{EMPTY_CELL}$")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))

Cell = str | int | float | None
Advance = Callable[[int], None]  # called with how many more are done


def argument(metavar: str, meaning: str, **settings: Any) -> Any:
    return typer.Argument(metavar=metavar, help=meaning, **settings)


def option(metavar: str, meaning: str, *names: str, **settings: Any) -> Any:
    """An option with a value; it has the name of its parameter unless others are given."""
    return typer.Option(*names, metavar=metavar, help=meaning, **settings)


def flag(names: str, meaning: str) -> Any:
    return typer.Option(names, help=meaning)


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def confirm(question: str, why: str) -> None:
    """Ask whether to go on; without a terminal, require --yes."""
    from kesin.foundation.problems import Invalid  # the help asks nothing, and starts sooner

    if not sys.stdin.isatty():
        raise Invalid(f"{why}: add --yes")
    typer.confirm(question, abort=True, err=True)


def on_terminal() -> bool:
    return sys.stdout.isatty()


def console(*, stderr: bool = False) -> "Console":
    """A Rich console on standard output, or on standard error for progress."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def say(text: str = "") -> None:
    """Print a line to standard output."""
    print(text, flush=True)  # noqa: T201  # output of a command


def warn(text: str) -> None:
    """Print a line to standard error."""
    sys.stderr.write(f"kesin: {text}\n")
    sys.stderr.flush()


def say_json(value: Any, *, line: bool = False) -> None:
    """Print a JSON document, or one line of NDJSON."""
    ascii_only = (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8"
    text = json.dumps(value, ensure_ascii=ascii_only, indent=None if line else 2)
    print(text, flush=line)  # noqa: T201


def answer(record: Any, text: str, *, as_json: bool) -> None:
    """Print what a command did: the record for scripts, or the text."""
    if as_json:
        say_json(record)
    else:
        say(text)


def visible(text: str) -> str:
    """The text with control characters escaped."""
    return _CONTROL_CHARACTERS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def visible_lines(text: str) -> str:
    """The text with control characters escaped, except line breaks."""
    return "\n".join(visible(line) for line in text.split("\n"))


def format_cell(value: Cell) -> str:
    """A value as the text of a table cell; whole numbers are grouped."""
    text = f"{value:,}" if isinstance(value, int) else str(value or "")
    return visible(text) or EMPTY_CELL


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, title: str = "", empty: str = "") -> None:
    """Print a table on a terminal, aligned columns otherwise; only ``empty`` without rows."""
    body = [[format_cell(value) for value in row] for row in rows]
    if not body:
        if empty:
            say(empty)
        return
    if title:
        say(f"\n{title}")
    if on_terminal():
        console().print(rich_table(columns, body))
        return
    lines = [[name.upper() for name in columns], *body]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        padded = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        say("  ".join(padded).rstrip())


def rich_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> "Table":
    """The table as a Rich object, for live displays."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    body = [[format_cell(value) for value in row] for row in rows]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        numbers = bool(body) and all(_NUMBER.match(row[index]) for row in body)
        side: Literal["left", "right"] = "right" if numbers else "left"
        table.add_column(name, justify=side, overflow="fold", no_wrap=name in UNBROKEN_COLUMNS)
    for row in body:
        table.add_row(*(Text(text) for text in row))
    return table


@contextmanager
def bars(*, shown: bool = True, of_bytes: bool = False) -> Iterator[Callable[[str, int | None], Advance]]:
    """Progress bars on a terminal, each made from a name and a total; none without a terminal."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _what, _total: lambda _more: None
        return
    from rich import progress as rich

    count = rich.DownloadColumn() if of_bytes else "{task.completed:,.0f}{task.fields[of]}"
    columns = ("{task.description}", rich.BarColumn(), count, rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=console(stderr=True), transient=True) as progress:

        def bar(what: str, total: int | None) -> Advance:
            task = progress.add_task(what, total=total, of=f" of {total:,}" if total else "")
            return lambda more: progress.advance(task, more)

        yield bar


def format_time(time: int | str | None) -> str:
    """A time in UTC to the millisecond, for tables: microseconds, or text as the API has it."""
    from kesin.foundation.clock import iso  # the help must start at once

    text = iso(time) if isinstance(time, int) else time
    return EMPTY_CELL if text is None else f"{text[:-4].replace('T', ' ')}Z"


def format_duration(seconds: float) -> str:
    """``5400`` → ``1.5 h``, for tables."""
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def pluralize(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n:,} {thing}s"


def format_counts(counts: dict[str, int]) -> str:
    """``ready 3 · done 12``; zeros are left out."""
    return " · ".join(f"{name} {n:,}" for name, n in counts.items() if n)


def cli_actor() -> str:
    """The name of the command line's user in the audit log."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"cli:{os.getuid()}"


def format_examples(*lines: str) -> str:
    """The examples of a command's help, each kept on a line of its own."""
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])
