"""What the terminal shows while the demonstration runs; lines, where there is no terminal."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from kesin.cli.demo.watch import SHOWN, Standing
from kesin.cli.output import Cell, console, on_terminal, rich_table, say, tally, visible
from kesin.web.dashboard.families import SHOWN as WORDS

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

TALLY_EVERY_S: Final = 5.0
NEWS: Final = 8


class Screen(Protocol):
    """Where it is shown."""

    def show(self, standing: Sequence[Standing], news: Sequence[str]) -> None:
        """So it stands, and this happened."""


class Lines:
    """News as they come, and how it stands every few seconds."""

    def __init__(self) -> None:
        self._next = 0.0
        self._last: Sequence[Standing] = ()

    def show(self, standing: Sequence[Standing], news: Sequence[str]) -> None:
        for one in news:
            say(f"  * {visible(one)}")
        if standing != self._last and time.monotonic() >= self._next:
            self._next, self._last = time.monotonic() + TALLY_EVERY_S, standing
            say("  " + " | ".join(f"{one.title}: {_told(one)}" for one in standing))


class Panel:
    """A table that is drawn again and again, and the last news below it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._news: deque[str] = deque(maxlen=NEWS)

    def show(self, standing: Sequence[Standing], news: Sequence[str]) -> None:
        at = time.strftime("%H:%M:%S")
        self._news += [f"{at}  {visible(one)}" for one in news]
        self._live.update(self._drawn(standing), refresh=True)

    def _drawn(self, standing: Sequence[Standing]) -> RenderableType:
        from rich.console import Group
        from rich.padding import Padding
        from rich.text import Text

        rows: list[list[Cell]] = [
            [one.title, *(one.counts[family] for family in SHOWN)] for one in standing
        ]
        table = rich_table(("", *(WORDS[family] for family in SHOWN)), rows)
        told = [Text(one, overflow="fold") for one in self._news]
        return Group(Padding(table, (1, 0, 0, 2)), *told, Text("Ctrl-C ends it.", style="dim"))


def _told(one: Standing) -> str:
    return tally({WORDS[family]: n for family, n in one.counts.items()}) or "none"


@contextmanager
def screen() -> Iterator[Screen]:
    """The right one for where standard output goes."""
    if not on_terminal():
        yield Lines()
        return
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, redirect_stderr=False) as live:
        yield Panel(live)
