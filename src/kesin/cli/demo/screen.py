"""What the demonstration prints: the sign-in, a tour, counts, and a summary."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

from kesin.cli.commands.audit import print_reports, replay_queues
from kesin.cli.demo.service import ADMIN, OPERATOR, Parts
from kesin.cli.support.inspection import open_for_reading
from kesin.engine.queue import Queue
from kesin.foundation import terminal
from kesin.store.open import open_store
from kesin.web.dashboard.state_groups import LABELS, StateGroup, state_groups
from kesin.workloads.common.demo import LOG_FILE, DemoContext, DemoPart, TourStop

COUNTS_EVERY_S: Final = 5.0
ON_THE_WAY: Final[tuple[StateGroup, ...]] = ("waiting", "working", "retrying")


def print_title(text: str) -> None:
    if terminal.on_terminal():
        terminal.console().print(f"\n[bold]{text}[/bold]")
    else:
        terminal.say(f"\n{text}")


def print_sign_in(address: str, passwords: Mapping[str, str]) -> None:
    print_title("Kesin is running, on this machine only")
    terminal.say(f"  address   {address}/dashboard")
    terminal.say(f"  sign in   {ADMIN}   {passwords[ADMIN]}   (may do everything)")
    terminal.say(f"  or as     {OPERATOR}    {passwords[OPERATOR]}   (an operator)")


def print_tour(context: DemoContext, parts: Iterable[DemoPart], pids: list[int]) -> None:
    print_title("A tour: open these pages, in any order")
    pages = f"{context.address}/dashboard"
    more = ": new jobs keep arriving" if context.pace.goes_on else ""
    stops = [TourStop("The overview", pages, f"The numbers change while you watch{more}.")]
    stops += chain.from_iterable(part.tour(pages) for part in parts)
    if pids:
        text = f"In another terminal: kill -9 {pids[0]}   Another process takes its place."
        stops.append(TourStop("Kill a worker", f"{pages}/workers", text))
    text = "As admin: the page lists every sign-in and everything that you did."
    stops.append(TourStop("Who did what", f"{pages}/audit", text))
    for number, stop in enumerate(stops, 1):
        terminal.say(f"  {number}. {stop.title}\n     {stop.page}\n     {stop.text}")


class DemoCounts:
    """How many jobs of each part are waiting, working and so on."""

    def __init__(self, queues: Mapping[str, Queue], parts: Parts) -> None:
        self._queues = {part.title: queues[name] for name, part in parts.items()}
        self._groups: dict[str, Counter[StateGroup]] = {}

    def read(self) -> None:
        for title, queue in self._queues.items():
            group_of, groups = state_groups(queue.lifecycle), Counter[StateGroup]()
            for state, n in queue.stats().states.items():
                groups[group_of[state]] += n
            self._groups[title] = groups

    @property
    def at_rest(self) -> bool:
        """Whether nothing more happens unless an operator acts."""
        return not any(groups[name] for groups in self._groups.values() for name in ON_THE_WAY)

    def __str__(self) -> str:
        return " | ".join(
            f"{title}: {terminal.format_counts({LABELS[name]: groups[name] for name in LABELS})}"
            for title, groups in self._groups.items()
        )


@contextmanager
def open_line() -> Iterator[Callable[[DemoCounts], object]]:
    """What shows the counts: a line that is redrawn on a terminal, else one every few seconds."""
    if not terminal.on_terminal():
        next_s, last = 0.0, ""

        def show(counts: DemoCounts) -> None:
            nonlocal next_s, last
            if time.monotonic() >= next_s and last != (line := str(counts)):
                next_s, last = time.monotonic() + COUNTS_EVERY_S, line
                terminal.say(line)

        yield show
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=terminal.console(), auto_refresh=False, redirect_stderr=False) as live:
        yield lambda counts: live.update(Text(f"{counts} (Ctrl-C stops it)"), refresh=True)


def print_summary(database: Path, parts: Parts) -> bool:
    """Print how many jobs stand where; whether their histories agree with them."""
    with closing(open_store(database)) as store:
        names = [name for name in store.queues() if name in parts]
        for name in names:
            open_for_reading(store, name)
        print_title("What was done")
        counts = [(name, terminal.format_counts(store.stats(name).states)) for name in names]
        terminal.print_table(("queue", "jobs"), counts)
        print_title("Every job replayed from its events (kesin audit verify)")
        reports = replay_queues(store, names, shown=False)
        print_reports(reports)
    agree = not any(report["different"] for report in reports)
    terminal.say("the history and the jobs agree" if agree else "the history and the jobs DIFFER")
    return agree


def print_kept(folder: Path, parts: Iterable[DemoPart]) -> None:
    print_title(f"Kept in {folder}")
    terminal.say(f"  see it again     KESIN_DATA_DIR={folder} kesin serve   (the same passwords)")
    for part in parts:
        for label, path in part.kept_files(folder):
            terminal.say(f"  {label:<16} {path}")
    terminal.say(f"  the log          {folder / LOG_FILE}")
