"""The demonstration from start to end. Its parts come from the workloads."""

import random
import time
from collections.abc import Mapping
from contextlib import closing, redirect_stderr
from typing import Final

from kesin.cli.demo import screen, service
from kesin.cli.demo.service import RunningService
from kesin.cli.support.errors import CommandError
from kesin.cli.support.signals import Stop, stop_on_signals
from kesin.engine.workload import Workload
from kesin.foundation.logs import set_up_logs
from kesin.foundation.settings import DATABASE_FILE
from kesin.foundation.terminal import say
from kesin.workloads import workloads
from kesin.workloads.common import demo

TICK_S: Final = 0.5
PATIENCE_S: Final = 180.0  # for all of it to come to rest
SEED: Final = 7


def run_demo(
    seconds: float | None, port: int | None, *, attended: bool, keep: bool
) -> tuple[bool, bool]:
    """Set it up, show it, take it down; whether it ended well, and with a request that hangs."""
    pace = demo.Pace.STROLL if attended or seconds is not None else demo.Pace.BRISK
    known = workloads()
    parts = load_parts(known)
    machine_settings = {name for part in parts.values() for name in part.machine_settings}
    ready: dict[str, demo.DemoPart] = {}
    with service.demo_folder(machine_settings, keep=keep) as folder, stop_on_signals() as stop:
        try:
            with (folder / demo.LOG_FILE).open("w", encoding="utf-8") as log, redirect_stderr(log):
                set_up_logs("console", "info")
                ready |= _find_ready(parts)
                served = service.demo_workloads(known, parts, ready, pace)
                with (
                    service.run_service(served, port, log) as running,
                    closing(demo.Background()) as threads,
                ):
                    accounts = running.service.accounts
                    passwords, shop_key = service.create_access(accounts, known, parts)
                    context = demo.DemoContext(
                        address=running.address,
                        accounts=accounts,
                        pace=pace,
                        background=threads,
                        chance=random.Random(SEED),  # a story, no secret
                        shop_key=shop_key,
                        wait=stop.wait,
                    )
                    _show(running, context, ready, passwords, stop, seconds)
            good = screen.print_summary(folder / DATABASE_FILE, ready)
        finally:
            if keep:
                screen.print_kept(folder, parts.values())
            else:
                for part in ready.values():
                    part.clean_up()
    return good, running.alive


def load_parts(known: Mapping[str, Workload]) -> dict[str, demo.DemoPart]:
    """The parts that the workloads bring, by the name of their queue."""
    parts: dict[str, demo.DemoPart] = {}
    for name, workload in known.items():
        if workload.demo is None:
            continue
        part = workload.demo()
        if not isinstance(part, demo.DemoPart):
            raise CommandError(f"the demo of the workload {name!r} is not a DemoPart")
        parts[name] = part
    return parts


def _find_ready(parts: Mapping[str, demo.DemoPart]) -> dict[str, demo.DemoPart]:
    """The parts that this machine can show, in the order they begin; prints what it lacks."""
    ready: dict[str, demo.DemoPart] = {}
    for name, part in parts.items():
        readiness = part.check_machine()
        if readiness.note:
            say(f"note: {readiness.note}")
        if readiness.ready:
            ready[name] = part
    return dict(sorted(ready.items(), key=lambda item: item[1].slow_start))


def _show(  # noqa: PLR0917  # it is the whole demonstration
    running: RunningService,
    context: demo.DemoContext,
    parts: Mapping[str, demo.DemoPart],
    passwords: Mapping[str, str],
    stop: Stop,
    seconds: float | None,
) -> None:
    """Run the parts until a stop is requested, the time is over, or all has come to rest."""
    for part in parts.values():
        part.set_up(context)
    screen.print_sign_in(running.address, passwords)
    if parts:
        screen.print_title("New work arrives")
    for part in parts.values():
        part.begin(context)
    pids = running.supervisor.pids if running.supervisor else []
    screen.print_tour(context, parts.values(), pids)
    say()
    counts = screen.DemoCounts(running.service.queues, parts)
    begin = time.monotonic()
    with screen.open_line() as show:
        while True:
            counts.read()
            show(counts)
            lasted = time.monotonic() - begin
            if not running.alive:
                raise CommandError(f"the service stopped unexpectedly: {demo.TRY_AGAIN}")
            if stop.requested or (seconds is not None and lasted >= seconds):
                break
            if not context.pace.goes_on:
                if counts.at_rest:
                    break
                if lasted > PATIENCE_S:
                    raise CommandError(f"some jobs did not end within {PATIENCE_S:g} s")
            stop.wait(TICK_S)
    say("\nstopping: running jobs may finish, and the others are released")
