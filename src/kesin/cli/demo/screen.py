"""What the demonstration prints: the sign-in, a tour, what happens, and a summary."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kesin.cli.commands.audit import print_reports, replay_queues
from kesin.cli.demo.service import ADMIN, OPERATOR, Parts, RunningService
from kesin.cli.support.inspection import open_for_reading
from kesin.engine.queue import Queue
from kesin.foundation import terminal
from kesin.store.open import open_store
from kesin.store.records import Filter
from kesin.web.dashboard.state_groups import LABELS as WORDS
from kesin.web.dashboard.state_groups import StateGroup, state_groups
from kesin.workloads.common.demo import LOG_FILE, DemoContext, DemoPart, TourStop

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

ON_THE_WAY: Final[tuple[StateGroup, ...]] = ("waiting", "working", "retrying")
SHOWN: Final[tuple[StateGroup, ...]] = (*ON_THE_WAY, "person", "done", "failed")


def print_title(text: str) -> None:
    if terminal.on_terminal():
        terminal.console().print(f"\n[bold]{text}[/bold]")
    else:
        terminal.say(f"\n{text}")


def print_sign_in(address: str, passwords: Mapping[str, str]) -> None:
    """Print the address and who can sign in."""
    print_title("Kesin runs, on this machine only")
    terminal.say(f"  address   {address}/dashboard")
    terminal.say(f"  sign in   {ADMIN}   {passwords[ADMIN]}   (may do everything)")
    terminal.say(f"  or as     {OPERATOR}    {passwords[OPERATOR]}   (an operator)")


def print_tour(context: DemoContext, parts: Iterable[DemoPart], pids: list[int]) -> None:
    """Print numbered steps, each with its page."""
    print_title("A tour: open these pages, in this order or any")
    for number, stop in enumerate(_stops(context, parts, pids), 1):
        terminal.say(f"  {number}. {stop.title}\n     {stop.page}\n     {stop.text}")


def _stops(context: DemoContext, parts: Iterable[DemoPart], pids: list[int]) -> Iterator[TourStop]:
    pages = f"{context.address}/dashboard"
    more = ": new work keeps coming in" if context.pace.goes_on else ""
    yield TourStop("The overview", pages, f"The numbers move while you look{more}.")
    for part in parts:
        yield from part.tour(pages)
    if pids:
        text = f"In another terminal: kill -9 {pids[0]}   Another process takes its place."
        yield TourStop("A worker that is killed", f"{pages}/workers", text)
    text = "As admin: every sign-in and every press of yours is there."
    yield TourStop("Who did what", f"{pages}/audit", text)


class QueueCounts(NamedTuple):
    """How many jobs of a queue are in which group of states."""

    title: str
    counts: dict[StateGroup, int]


class DemoWatch:
    """Reads the queues of the parts, and tells what changed since the last time."""

    def __init__(self, running: RunningService, parts: Parts, context: DemoContext) -> None:
        self.running = running
        self.context = context
        self._news = context.news
        self._queues = {name: queue for name, queue in context.queues.items() if name in parts}
        self._parts = parts
        served = running.service.workloads
        own = (part for name, part in parts.items() if served[name].needs_own_process)
        self._workers_of = next(own, None)  # whose jobs the processes beside the service run
        self._moves: Counter[tuple[str, str]] = Counter()
        self._pids: list[int] = running.worker_pids

    def read(self) -> list[QueueCounts]:
        """The counts of the queues; tells the news."""
        self._tell_moves()
        for part in self._parts.values():
            part.observe(self.context)
        self._tell_workers()
        return self._counts()

    def at_rest(self) -> bool:
        """Whether nothing more happens unless an operator acts."""
        return not any(queue.counts[family] for queue in self._counts() for family in ON_THE_WAY)

    def _counts(self) -> list[QueueCounts]:
        return [_counts(self._parts[name].title, queue) for name, queue in self._queues.items()]

    def _tell_moves(self) -> None:
        made: Counter[tuple[str, str]] = Counter()
        for name, queue in self._queues.items():
            for flow in queue.store.move_counts(name):
                if flow.move in self._parts[name].moves:
                    made[name, flow.move] += flow.n
        for (name, move), n in (made - self._moves).items():
            self._news.count(f"{name}.{move}", n)
            sentence = self._parts[name].moves[move]
            example = self._example(name, sentence.example_state)
            self._news.tell(f"{terminal.pluralize(n, sentence.thing)} {sentence.sentence}{example}")
        self._moves = made

    def _example(self, name: str, state: str) -> str:
        """Where to see a job in this state."""
        if not state:
            return ""
        jobs = self._queues[name].jobs(Filter(states=(state,)), limit=1).jobs
        address = self.context.address
        return f"; one of them: {address}/dashboard/jobs/{jobs[0].id}" if jobs else ""

    def _tell_workers(self) -> None:
        before, self._pids = self._pids, self.running.worker_pids
        if self._workers_of is None:
            return
        died = [pid for pid in before if pid not in self._pids]
        started = [pid for pid in self._pids if pid not in before]
        if died:
            self._news.tell(self._workers_of.worker_died(died[0]))
        elif started:
            self._news.tell(self._workers_of.worker_started(started[0]))


def _counts(title: str, queue: Queue) -> QueueCounts:
    family = state_groups(queue.lifecycle)
    counts: dict[StateGroup, int] = dict.fromkeys(SHOWN, 0)
    for state, n in queue.stats().states.items():
        counts[family[state]] = counts.get(family[state], 0) + n
    return QueueCounts(title, counts)


COUNTS_EVERY_S: Final = 5.0
MAX_NEWS: Final = 8
Show = Callable[[Sequence[QueueCounts], Sequence[str]], None]  # shows counts and news


class Lines:
    """News as they come, and the counts every few seconds."""

    def __init__(self) -> None:
        self._next = 0.0
        self._last: Sequence[QueueCounts] = ()

    def show(self, queues: Sequence[QueueCounts], news: Sequence[str]) -> None:
        for text in news:
            terminal.say(f"  * {terminal.visible(text)}")
        if queues != self._last and time.monotonic() >= self._next:
            self._next, self._last = time.monotonic() + COUNTS_EVERY_S, queues
            terminal.say("  " + " | ".join(f"{queue.title}: {_format(queue)}" for queue in queues))


class LiveTable:
    """A table that is redrawn, with the last news below it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._news: deque[str] = deque(maxlen=MAX_NEWS)

    def show(self, queues: Sequence[QueueCounts], news: Sequence[str]) -> None:
        at = time.strftime("%H:%M:%S")
        self._news += [f"{at}  {terminal.visible(text)}" for text in news]
        self._live.update(self._draw(queues), refresh=True)

    def _draw(self, queues: Sequence[QueueCounts]) -> RenderableType:
        from rich.console import Group
        from rich.padding import Padding
        from rich.text import Text

        rows: list[list[terminal.Cell]] = [
            [queue.title, *(queue.counts[family] for family in SHOWN)] for queue in queues
        ]
        table = terminal.rich_table(("", *(WORDS[family] for family in SHOWN)), rows)
        news = [Text(text, overflow="fold") for text in self._news]
        return Group(Padding(table, (1, 0, 0, 2)), *news, Text("Ctrl-C ends it.", style="dim"))


def _format(queue: QueueCounts) -> str:
    counts = {WORDS[family]: n for family, n in queue.counts.items()}
    return terminal.format_counts(counts) or "none"


@contextmanager
def open_screen() -> Iterator[Show]:
    """What shows counts and news where standard output goes."""
    if not terminal.on_terminal():
        yield Lines().show
        return
    from rich.live import Live

    with Live(console=terminal.console(), auto_refresh=False, redirect_stderr=False) as live:
        yield LiveTable(live).show


def print_summary(database: Path, context: DemoContext, parts: Parts) -> bool:
    """Print what was done; whether nothing was lost, and the history agrees with the jobs."""
    with closing(open_store(database)) as store:
        names = [name for name in store.queues() if name in parts]
        for name in names:
            open_for_reading(store, name)
        print_title("What was done")
        counts = [(name, terminal.format_counts(store.stats(name).states)) for name in names]
        terminal.print_table(("queue", "jobs"), counts)
        complete = [part.summarize(context, store) for part in parts.values()]
        print_title("Every job made again from its events (kesin audit verify)")
        reports = replay_queues(store, names, shown=False)
        print_reports(reports)
    agree = not any(report["different"] for report in reports)
    terminal.say("the history and the jobs agree" if agree else "the history and the jobs DIFFER")
    return agree and all(complete)


def print_kept(folder: Path, parts: Iterable[DemoPart]) -> None:
    """Print where the data is, and how to serve it again."""
    print_title(f"Kept in {folder}")
    terminal.say(f"  see it again     KESIN_DATA_DIR={folder} kesin serve   (the same passwords)")
    for part in parts:
        for label, path in part.kept_files(folder):
            terminal.say(f"  {label:<16} {path}")
    terminal.say(f"  the log          {folder / LOG_FILE}")
