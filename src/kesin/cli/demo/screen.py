"""What the terminal shows while the demonstration runs; lines, where there is no terminal."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from kesin.cli.demo.common import News
from kesin.cli.demo.service import Running
from kesin.cli.support.output import Cell, console, on_terminal, rich_table, say, tally, visible
from kesin.engine.queue import Queue
from kesin.foundation.terminal import counted
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.web.dashboard.state_groups import SHOWN as WORDS
from kesin.web.dashboard.state_groups import Family, families

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

TITLES: Final = {"oci": "conversions", "pdf": "PDFs", "optiplan": "cutting orders"}
SHOWN: Final[tuple[Family, ...]] = ("waiting", "working", "retrying", "person", "done", "failed")
ON_THE_WAY: Final[tuple[Family, ...]] = ("waiting", "working", "retrying")
RECOVERED: Final = "recovered"
_CLOCK: Final = {
    ("oci", "recover"): ("conversion", "of a crashed script came back"),
    ("oci", "revive"): ("conversion", "that Google had put off came back"),
    ("pdf", "recover"): ("PDF", "of a dead process came back"),
    ("optiplan", "recover"): ("cutting order", "of a dead worker came back"),
}


@dataclass(frozen=True, slots=True)
class Standing:
    """How many jobs of a queue are where."""

    title: str
    counts: dict[Family, int]

    @property
    def moving(self) -> int:
        """Those that nobody need do anything for."""
        return sum(self.counts[family] for family in ON_THE_WAY)


class Watch:
    """Looks at the queues, and says what changed since the last look."""

    def __init__(self, running: Running, news: News) -> None:
        self._running = running
        self._news = news
        self._queues = [one for one in running.service.queues.values() if one.name in TITLES]
        self._moves: Counter[tuple[str, str]] = Counter()
        self._held: dict[str, str] = {}
        self._pids: list[int] = running.worker_pids

    def look(self) -> list[Standing]:
        """How it stands."""
        self._clock_moves()
        self._holds()
        self._workers()
        return [_standing(queue) for queue in self._queues]

    def at_rest(self) -> bool:
        """Whether nothing will happen any more unless somebody does something."""
        return not any(_standing(queue).moving for queue in self._queues)

    def _clock_moves(self) -> None:
        seen: Counter[tuple[str, str]] = Counter()
        for queue in self._queues:
            for flow in queue.store.flows(queue.name):
                if (queue.name, flow.move) in _CLOCK:
                    seen[queue.name, flow.move] += flow.n
        for (name, move), n in (seen - self._moves).items():
            if (name, move) == ("oci", "recover"):
                self._news.count(RECOVERED, n)
            thing, what = _CLOCK[name, move]
            self._news.tell(f"{counted(n, thing)} {what}{self._example(name, 'RETRY')}")
        self._moves = seen

    def _example(self, name: str, state: str) -> str:
        """Where to see one of them."""
        queue = self._running.service.queues[name]
        if state not in queue.lifecycle.state:
            return ""
        found = queue.jobs(Filter(states=(state,)), limit=1).jobs
        return (
            f"; one of them: {self._running.address}/dashboard/jobs/{found[0].id}" if found else ""
        )

    def _holds(self) -> None:
        queue = self._running.service.queues.get("optiplan")
        if queue is None:
            return
        held = {job.id: job for job in queue.jobs(Filter(states=("HOLD",)), limit=MAX_PAGE).jobs}
        for job_id, job in held.items():
            if job_id not in self._held:
                self._held[job_id] = _order_id(job.data)
                self._news.tell(
                    f"order {self._held[job_id]} is held: {job.error_message}; it waits for you at "
                    f"{self._running.address}/dashboard/optiplan"
                )
        for job_id in self._held.keys() - held.keys():
            self._news.tell(f"order {self._held.pop(job_id)} is held no longer")

    def _workers(self) -> None:
        now = self._running.worker_pids
        gone = [pid for pid in self._pids if pid not in now]
        if gone:
            self._news.tell(f"the process {gone[0]} that made PDFs died; another takes its place")
        new = [pid for pid in now if pid not in self._pids]
        if new and not gone:
            self._news.tell(f"process {new[0]} makes PDFs now")
        self._pids = now


def _standing(queue: Queue) -> Standing:
    family = families(queue.lifecycle)
    counts: dict[Family, int] = dict.fromkeys(SHOWN, 0)
    for state, n in queue.stats().states.items():
        counts[family[state]] = counts.get(family[state], 0) + n
    return Standing(TITLES[queue.name], counts)


def _order_id(data: Any) -> str:
    try:
        return str(data["order"]["order_id"])
    except (KeyError, TypeError):
        return json.dumps(data)[:40]


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
