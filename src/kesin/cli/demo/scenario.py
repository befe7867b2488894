"""The demonstration from start to end. Its parts come from the workloads."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Final, TextIO

from kesin.cli.demo.screen import DemoWatch, screen
from kesin.cli.demo.service import (
    RunningService,
    create_shop_key,
    create_users,
    demo_folder,
    demo_workloads,
    run_service,
)
from kesin.cli.demo.tour import print_kept, print_sign_in, print_summary, print_title, print_tour
from kesin.cli.support.errors import CommandError
from kesin.cli.support.signals import Stop, stop_on_signals
from kesin.engine.workload import Workload
from kesin.foundation.logs import set_up_logs
from kesin.foundation.settings import DATABASE_FILE
from kesin.foundation.terminal import say
from kesin.workloads import workloads
from kesin.workloads.common.demo import (
    LOG_FILE,
    TRY_AGAIN,
    Background,
    DemoContext,
    DemoPart,
    News,
    Pace,
    background,
)

TICK_S: Final = 0.5
PATIENCE_S: Final = 180.0  # for all of it to come to rest
SEED: Final = 7


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """How the demonstration ended."""

    good: bool
    stuck: bool  # a request hangs in a thread


@dataclass(frozen=True, slots=True)
class _Duration:
    """When the demonstration ends."""

    seconds: float | None
    until_stopped: bool


def run_demo(seconds: float | None, port: int | None, *, attended: bool, keep: bool) -> DemoOutcome:
    """Set it up, show it, take it down."""
    pace = Pace.STROLL if attended or seconds is not None else Pace.BRISK
    duration = _Duration(seconds, until_stopped=attended and seconds is None)
    known = workloads()
    parts = load_parts(known)
    machine_settings = {name for part in parts.values() for name in part.machine_settings}
    ready: dict[str, DemoPart] = {}
    with demo_folder(machine_settings, keep=keep) as folder, stop_on_signals() as stop:
        try:
            with (folder / LOG_FILE).open("w", encoding="utf-8") as log, redirect_stderr(log):
                set_up_logs("console", "info")
                ready |= _find_ready(parts)
                served = demo_workloads(known, parts, ready, pace)
                queues = [name for name, workload in known.items() if workload.group in parts]
                scopes = tuple(scope for part in parts.values() for scope in part.scopes)
                show = _Show(ready, pace, queues, scopes)
                context, stuck = show.run(served, port, stop, log, duration)
            good = print_summary(folder / DATABASE_FILE, context, ready)
        finally:
            if keep:
                print_kept(folder, parts.values())
            else:
                for part in ready.values():
                    part.clean_up()
    return DemoOutcome(good, stuck)


def load_parts(known: Mapping[str, Workload]) -> dict[str, DemoPart]:
    """The parts that the workloads bring, by the name of their queue."""
    parts: dict[str, DemoPart] = {}
    for name, workload in known.items():
        if workload.demo is None:
            continue
        part = workload.demo()
        if not isinstance(part, DemoPart):
            raise CommandError(f"the demo of the workload {name!r} is no DemoPart")
        parts[name] = part
    return parts


def _find_ready(parts: Mapping[str, DemoPart]) -> dict[str, DemoPart]:
    """The parts that this machine can show, in the order they begin; prints what it lacks."""
    ready: dict[str, DemoPart] = {}
    for name, part in parts.items():
        readiness = part.check_machine()
        if readiness.note:
            say(f"note: {readiness.note}")
        if readiness.ready:
            ready[name] = part
    return dict(sorted(ready.items(), key=lambda item: item[1].slow_start))


@dataclass(frozen=True, slots=True)
class _Show:
    """A run of the parts against a service."""

    parts: Mapping[str, DemoPart]
    pace: Pace
    queues: list[str]  # that the operator may work on
    scopes: tuple[str, ...]  # of the shop's API key

    def run(
        self,
        served: Mapping[str, Workload],
        port: int | None,
        stop: Stop,
        log: TextIO,
        duration: _Duration,
    ) -> tuple[DemoContext, bool]:
        """Run the service and the parts; the context, and whether the service did not end."""
        news = News()
        with run_service(served, port, log) as running:
            with background(news) as threads:
                context = self._set_up(running, news, threads, stop)
                if self.parts:
                    print_title("Work comes in")
                for part in self.parts.values():
                    part.begin(context)
                print_tour(context, self.parts.values(), running.worker_pids)
                say()
                workers_of = next(
                    (part for name, part in self.parts.items() if served[name].needs_own_process),
                    None,
                )
                watch = DemoWatch(running, self.parts, context, workers_of)
                _show_until_end(running, watch, news, stop, duration)
            say("\nstopping: what runs may finish, the rest is given back")
        return context, running.alive

    def _set_up(
        self, running: RunningService, news: News, threads: Background, stop: Stop
    ) -> DemoContext:
        """Create users, keys and what the parts need; print who can sign in."""
        accounts = running.service.accounts
        passwords = create_users(accounts, self.queues)
        context = DemoContext(
            address=running.address,
            accounts=accounts,
            queues=running.service.queues,
            pace=self.pace,
            news=news,
            background=threads,
            chance=random.Random(SEED),  # a story, no secret
            shop_key=create_shop_key(accounts, self.scopes),
            wait=stop.wait,
        )
        for part in self.parts.values():
            part.set_up(context)
        print_sign_in(running.address, passwords)
        return context


def _show_until_end(
    running: RunningService, watch: DemoWatch, news: News, stop: Stop, duration: _Duration
) -> None:
    """Until a stop is requested, the time is over, or everything has come to rest."""
    begin = time.monotonic()
    with screen() as shown:
        while True:
            shown.show(watch.read(), news.take())
            lasted = time.monotonic() - begin
            if not running.alive:
                raise CommandError(f"the service ended by itself: {TRY_AGAIN}")
            if stop.requested:
                return
            if duration.seconds is not None and lasted >= duration.seconds:
                return
            if duration.seconds is None and not duration.until_stopped:
                if watch.at_rest():
                    return
                if lasted > PATIENCE_S:
                    raise CommandError(f"not all work came to rest within {PATIENCE_S:g} s")
            stop.wait(TICK_S)
