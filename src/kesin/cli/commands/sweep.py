"""`kesin sweep`: the clock's moves, once or again and again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kesin.cli.support.arguments import AsJson, LifecycleName, QueueNames
from kesin.cli.support.errors import Usage, check_choice

if TYPE_CHECKING:
    from kesin.cli.support.context import Desk
    from kesin.engine.queue import Queue
    from kesin.engine.sweeper import Swept

LONGEST_PAUSE_S = 60.0


def sweep(
    queues: QueueNames = None,
    *,
    every: Annotated[
        float | None,
        typer.Option(min=0.01, metavar="SECONDS", help="Go on, with this pause, until stopped."),
    ] = None,
    stage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE",
            help="Only this: cap, recover, expire, revive, timeout or prune; repeatable.",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With --every: stop after N passes.")
    ] = None,
    lifecycle: LifecycleName = None,
    as_json: AsJson = False,
) -> None:
    """Make the clock's moves.

    Cap, recover, expire, revive, time out and prune, in this order. Without it, jobs of dead
    workers are not taken back. Safe on many machines at once.
    """
    from kesin.cli.support.context import open_desk
    from kesin.cli.support.signals import stop_on_signals
    from kesin.engine.sweeper import Sweeper
    from kesin.foundation.logs import Logger
    from kesin.lifecycle.vocabulary import STAGES

    for one in stage or ():
        check_choice("stage", one, STAGES)
    stages = tuple(one for one in STAGES if not stage or one in stage)
    if lifecycle is not None and not queues:
        raise Usage("--lifecycle needs the queues it is for")
    with open_desk(make=True, level="warning" if every is None else "info") as desk:
        opened = _open(desk, queues, lifecycle)
        sweeper = Sweeper(opened, chores=_duties(desk, opened, "after_sweep"))
        sweeper.errands = _duties(desk, opened, "periodic")
        _tell_untidied(opened)
        if every is None:
            _tell(sweeper.sweep(stages), as_json=as_json, line=False)
            return
        log = Logger("kesin.cli")
        with stop_on_signals() as stop:
            stop.also(sweeper.stop)
            passes, pause_s = 0, every
            log.info("sweeper_started", every_s=every, pid=os.getpid())
            while not stop.asked:
                try:
                    if not queues:  # new ones may have come
                        sweeper.queues = _open(desk, None, None, quiet=passes > 0)
                        sweeper.chores = _duties(desk, sweeper.queues, "after_sweep")
                        sweeper.errands = _duties(desk, sweeper.queues, "periodic")
                    _tell(sweeper.sweep(stages), as_json=as_json, line=True)
                    pause_s = every
                except Exception as problem:  # noqa: BLE001  # the next pass tries again
                    pause_s = _tell_failure(problem, max(pause_s, every))
                passes += 1
                if passes == count:
                    break
                stop.wait(pause_s)
            log.info("sweeper_stopped", passes=passes)


def _open(
    desk: Desk, names: list[str] | None, lifecycle: str | None, *, quiet: bool = False
) -> list[Queue]:
    """The queues to sweep; one whose rules are not known here is skipped aloud, unless named."""
    from kesin.cli.support.output import warn

    if names:
        return [desk.queue(name, lifecycle) for name in names]
    opened = []
    for name in desk.store.queues():
        try:
            opened.append(desk.queue(name))
        except Usage as problem:
            if not quiet:
                warn(f"skipped {name}: {problem}")
    return opened


def _duties(
    desk: Desk, queues: Sequence[Queue], kind: Literal["after_sweep", "periodic"]
) -> dict[str, Callable[[], object]]:
    """What the workloads of these queues want done: behind their jobs, or at every pass."""
    from kesin.workloads import workloads

    known = workloads()
    found: dict[str, Callable[[], object]] = {}
    for queue in queues:
        workload = known.get(queue.name)
        duty = None if workload is None else getattr(workload, kind)
        if workload is not None and duty is not None and not workload.missing_libraries:
            found[queue.name] = partial(duty, desk.house(workload))
    return found


def _tell_untidied(queues: Sequence[Queue]) -> None:
    """Jobs move without their workload's libraries; the files behind them stay."""
    from kesin.cli.support.output import warn
    from kesin.workloads import workloads

    known = workloads()
    for name in [one.name for one in queues if one.name in known]:
        if known[name].after_sweep is not None and (lacking := known[name].missing_libraries):
            warn(
                f"{name} is not tidied here, without {', '.join(lacking)}: `kesin doctor` says more"
            )


def _tell(swept: Swept, *, as_json: bool, line: bool) -> None:
    from kesin.cli.support.output import print_table, say, say_json, warn

    for name in swept.away:
        warn(f"{name} was not swept: its store is not reachable")
    moved: list[dict[str, Any]] = [
        {"queue": queue, "move": move, "jobs": n} for (queue, move), n in swept.moved.items() if n
    ]
    if as_json:
        say_json({"moved": swept.total, "moves": moved}, line=line)
    elif line:
        for one in moved:
            say(f"{one['queue']}: {one['move']} {one['jobs']}")
    else:
        rows = [(one["queue"], one["move"], one["jobs"]) for one in moved]
        print_table(("queue", "move", "jobs"), rows, empty="nothing was due")


def _tell_failure(problem: Exception, pause_s: float) -> float:
    """Say what went wrong; the longer pause before the next pass."""
    from kesin.cli.support.errors import explain
    from kesin.cli.support.output import warn

    told = explain(problem)
    if told is None:
        raise problem
    pause_s = min(pause_s * 2, max(LONGEST_PAUSE_S, pause_s))
    warn(f"the sweep failed and is tried again in {pause_s:g} s: {told.sentence}")
    return pause_s
