"""`kesin sweep`: the scheduled moves, once or repeatedly."""

import os
from typing import Annotated, Any

from kesin.cli.support.arguments import AsJson, LifecycleName, QueueNames, option
from kesin.cli.support.context import CommandContext, open_context
from kesin.cli.support.errors import UsageError, check_choice, explain
from kesin.cli.support.signals import stop_on_signals
from kesin.engine.queue import Queue
from kesin.engine.sweeper import Sweeper, SweepResult
from kesin.foundation.logs import Logger
from kesin.foundation.terminal import print_table, say, say_json, warn
from kesin.lifecycle.vocabulary import STAGES
from kesin.store.open import OPEN_WAIT_S
from kesin.workloads import workloads

LONGEST_PAUSE_S = 60.0


def sweep(
    queues: QueueNames = None,
    *,
    every: Annotated[float | None, option("SECONDS", "Sweep again after this pause, until stopped.", min=0.01)] = None,
    stage: Annotated[list[str] | None, option("STAGE", f"Only this stage: {', '.join(STAGES)}; repeatable.")] = None,
    count: Annotated[int | None, option("N", "With --every: stop after N passes.", min=1)] = None,
    lifecycle: LifecycleName = None,
    as_json: AsJson = False,
) -> None:
    """Run scheduled moves: recover, expire, prune.

    The stages run in this order: settle, cap, recover, expire, revive, timeout and prune. `kesin
    serve` and `kesin worker` also sweep; if none of these commands is running, jobs of dead workers
    are not recovered. Several machines can sweep at the same time.
    """
    for name in stage or ():
        check_choice("stage", name, STAGES)
    stages = tuple(name for name in STAGES if not stage or name in stage)
    if lifecycle is not None and not queues:
        raise UsageError("--lifecycle needs queues: name those that use the lifecycle")
    once = every is None
    wait_s = 0.0 if once else OPEN_WAIT_S
    with open_context(create=True, level="warning" if once else "info", wait_s=wait_s) as context:
        sweeper = Sweeper(_open_queues(context, queues, lifecycle))
        _add_workload_calls(context, sweeper)
        if every is None:
            _print_swept(sweeper.sweep(stages), as_json=as_json, line=False)
            return
        log = Logger("kesin.cli")
        with stop_on_signals() as stop:
            stop.on_request(sweeper.stop)
            passes, pause_s = 0, every
            log.info("sweeper_started", every_s=every, pid=os.getpid())
            while not stop.requested:
                try:
                    if not queues:  # new ones may have come
                        sweeper.queues = _open_queues(context, None, None, quiet=passes > 0)
                        _add_workload_calls(context, sweeper, quiet=True)
                    _print_swept(sweeper.sweep(stages), as_json=as_json, line=True)
                    pause_s = every
                except Exception as problem:  # the next pass retries
                    if (report := explain(problem)) is None:
                        raise
                    pause_s = max(pause_s, every)
                    pause_s = min(pause_s * 2, max(LONGEST_PAUSE_S, pause_s))
                    warn(f"the sweep failed and is retried in {pause_s:g} s: {report[0]}")
                passes += 1
                if passes == count:
                    break
                stop.wait(pause_s)
            log.info("sweeper_stopped", passes=passes)


def _open_queues(
    context: CommandContext, names: list[str] | None, lifecycle: str | None, *, quiet: bool = False
) -> list[Queue]:
    """The queues to sweep. A queue whose lifecycle is not known here is skipped with a warning."""
    if names:
        return [context.open_queue(name, lifecycle) for name in names]
    opened = []
    for name in context.store.queues():
        try:
            opened.append(context.open_queue(name))
        except UsageError as problem:
            if not quiet:
                warn(f"skipped {name}: {problem}")
    return opened


def _add_workload_calls(context: CommandContext, sweeper: Sweeper, *, quiet: bool = False) -> None:
    """Add what workloads call after a sweep and periodically; warn where a library is missing."""
    known = workloads()
    for workload in [known[queue.name] for queue in sweeper.queues if queue.name in known]:
        missing = ", ".join(workload.missing_libraries)
        if missing and workload.after_sweep and not quiet:
            name = workload.name
            warn(f"{name} is not cleaned up, because {missing} is missing: see `kesin doctor`")
        if not missing and (workload.after_sweep or workload.periodic):
            sweeper.add_calls(workload, context.workload_context(workload))


def _print_swept(swept: SweepResult, *, as_json: bool, line: bool) -> None:
    for name in swept.unreachable:
        warn(f"{name} was not swept: its store is not reachable")
    moved: list[dict[str, Any]] = [
        {"queue": queue, "move": move, "jobs": n} for (queue, move), n in swept.moved.items() if n
    ]
    if as_json:
        say_json({"moved": swept.total, "moves": moved}, line=line)
    elif line:
        for row in moved:
            say(f"{row['queue']}: {row['move']} {row['jobs']}")
    else:
        rows = [list(row.values()) for row in moved]
        print_table(("queue", "move", "jobs"), rows, empty="nothing was due")
