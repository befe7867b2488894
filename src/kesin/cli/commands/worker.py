"""`kesin worker`: handlers over queues, in threads and processes, until a stop is requested."""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from kesin.cli.support import arguments
from kesin.cli.support.arguments import Several, argument, flag, option
from kesin.cli.support.context import CommandContext, load_handler, open_context
from kesin.cli.support.errors import FAILED, CommandError, UsageError
from kesin.cli.support.signals import Stop, stop_on_signals
from kesin.cli.support.supervisor import WorkerProcesses, worker_command
from kesin.engine.queue import Queue
from kesin.engine.results import is_async
from kesin.engine.worker import Worker
from kesin.foundation.extras import extra_providing, install_command
from kesin.foundation.logs import Logger
from kesin.foundation.settings import load_settings
from kesin.store.open import OPEN_WAIT_S
from kesin.workloads import workloads

Handler = Callable[..., Any] | None
RELEASE_S = 5.0  # beyond the grace period, for releasing the claims that did not finish


def worker(
    queues: Annotated[list[str], argument("QUEUE", "The queues to work on.", autocompletion=arguments.complete_queues)],
    *,
    handler: Annotated[
        str | None,
        option("MODULE:FUNCTION", "The function to call for each job; the current folder is searched first."),
    ] = None,
    batch_handler: Annotated[bool, flag("--batch-handler", "The handler accepts a list of jobs.")] = False,
    lifecycle: arguments.LifecycleName = None,
    threads: Annotated[
        int | None,
        option("N", "Jobs that each process runs at once; defaults to 1 or the workload's default.", min=1, max=1_000),
    ] = None,
    processes: Annotated[int, option("N", "The number of processes.", min=1, max=256)] = 1,
    batch: Annotated[
        int | None, option("N", "Maximum jobs per claim; defaults to 500 or the workload's.", min=1, max=10_000)
    ] = None,
    tenant: Annotated[Several, option("TENANT", "Only jobs of this tenant; repeatable.")] = None,
    grace: Annotated[
        float | None, option("SECONDS", "Time for jobs to finish when stopping; defaults to KESIN_GRACE_S.", min=0)
    ] = None,
    until_idle: Annotated[bool, flag("--until-idle", "Stop when no job is due.")] = False,
    rq: Annotated[bool, flag("--rq", "Wait for RQ to push jobs (for PDFs in Redis).")] = False,
    sweep: Annotated[bool, flag("--sweep/--no-sweep", "Sweep these queues, or leave that to other processes.")] = True,
    child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
) -> None:
    """Run a worker for one or more queues.

    The queues oci, oci_adjustments, pdf, pdf_batches, pdf_webhooks and optiplan need no --handler.

    After SIGTERM or Ctrl-C, the worker claims no more jobs. Running jobs may finish within the
    grace period; unfinished jobs are released. A second signal releases all jobs immediately. If a
    process dies, another worker of the queue or a sweeper recovers its jobs.
    """
    if len(set(queues)) < len(queues):
        raise UsageError("a queue is named twice")
    if rq and (handler is not None or tenant):
        raise UsageError("--rq runs the jobs that RQ pushes: omit --handler and --tenant")
    if handler is None and batch_handler:
        raise UsageError("--batch-handler needs --handler: give both")
    function = None if handler is None else load_handler(handler, batch=batch_handler)
    if grace is None:
        grace = load_settings().grace_s
    options = {"tenants": tenant, "grace_s": grace, **_sizes(function, threads, batch)}
    with open_context(create=True, level="info", wait_s=OPEN_WAIT_S) as context:
        opened = [context.open_queue(name, lifecycle) for name in queues]
        if function is None:
            workers = [_workload_worker(context, queue, options, push=rq) for queue in opened]
            if rq and not any(workloads()[queue].push_worker for queue in queues):
                raise UsageError("RQ pushes no jobs of these queues: omit --rq")
        else:
            options["batch_handler" if batch_handler else "handler"] = function
            workers = [Worker(queue, **options) for queue in opened]
        if processes == 1:
            with stop_on_signals() as stop:
                if child:
                    _stop_with_parent(stop)
                run_workers(workers, stop, until_idle=until_idle, sweep=sweep)
            return
    how: dict[str, object] = {"handler": handler, "batch_handler": batch_handler}
    how |= {"lifecycle": lifecycle, "threads": threads, "batch": batch, "tenant": tenant}
    build = partial(worker_command, queues, **how, grace=grace, until_idle=until_idle, rq=rq)
    command, others = build(no_sweep=not sweep), build(no_sweep=True)  # one sweeper is enough
    known = workloads()
    # A handler is the user's code, which may read them.
    opens_secrets = handler is not None or any(known[queue].opens_secrets for queue in queues)
    supervised = WorkerProcesses(command, processes, grace, opens_secrets, command_of_others=others)
    with stop_on_signals() as stop:
        code = supervised.run(stop)
    if code:
        raise typer.Exit(FAILED if code < 0 else code)


def _sizes(function: Handler, threads: int | None, batch: int | None) -> dict[str, Any]:
    """How many jobs run at a time, as far as the options say."""
    awaited = is_async(function)
    if awaited and batch is not None:
        raise UsageError("--batch is for plain handlers: async ones run --threads jobs at a time")
    sizes = {"concurrency" if awaited else "threads": threads, "batch": batch}
    return {name: size for name, size in sizes.items() if size is not None}


def _workload_worker(context: CommandContext, queue: Queue, options: dict[str, Any], *, push: bool) -> Worker:
    name, workload = queue.name, workloads().get(queue.name)
    if workload is None or workload.worker is None:
        raise UsageError(f"no workload runs the jobs of {name!r}: name a function with --handler")
    if lacking := workload.missing_libraries:
        extra = extra_providing(lacking[0])
        how = f"`{install_command(extra)}`" if extra else "pip"
        raise CommandError(f"the handler of {name} needs {lacking[0]}: install it with {how}")
    make = (push and workload.push_worker) or workload.worker
    worker = make(context.workload_context(workload))
    for option_name, value in options.items():
        if value is not None:
            setattr(worker, option_name, value)
    return worker


def run_workers(workers: Sequence[Worker], stop: Stop, *, until_idle: bool = False, sweep: bool = True) -> None:
    """Run all workers; return when they have stopped and every claim is finished or released."""
    log = Logger("kesin.cli")
    names = list(dict.fromkeys(worker.queue.name for worker in workers))
    log.info("worker_started", queues=names, worker=workers[0].name, pid=os.getpid())
    grace_s = max(worker.grace_s for worker in workers)
    if until_idle:
        _drain(workers, stop, grace_s)
    else:
        for worker in workers:
            worker.sweep = sweep
            worker.start()
        while not stop.wait():
            pass
        log.info("worker_stopping", queues=names)
        for worker in workers:
            worker.stop()
        _in_threads([worker.join for worker in workers], stop, workers, grace_s + RELEASE_S)
    log.info("worker_stopped", queues=names, jobs=sum(worker.completed for worker in workers))


def _drain(workers: Sequence[Worker], stop: Stop, grace_s: float) -> None:
    """Work until nothing is due, each worker on a thread of its own."""
    for worker in workers:
        stop.on_request(worker.stop)
    try:
        _in_threads([worker.drain for worker in workers], stop, workers, grace_s)
    finally:
        for worker in workers:
            worker.release_claims(worker.leases.held())


def _in_threads(
    calls: Sequence[Callable[[], object]], stop: Stop, workers: Sequence[Worker], patience_s: float
) -> None:
    """Run calls in threads; release what is claimed too long after a stop, or at a second one."""
    problems: list[BaseException] = []
    left = len(calls)
    lock = threading.Lock()

    def run(call: Callable[[], object]) -> None:
        nonlocal left
        try:
            call()
        except BaseException as problem:  # noqa: BLE001  # raised again in the main thread
            problems.append(problem)
        with lock:
            left -= 1
        stop.wake()

    for call in calls:
        threading.Thread(target=run, args=(call,), daemon=True).start()
    while left and not stop.forced:
        if not stop.requested:
            stop.wait()
        elif not stop.wait_until(lambda: not left or stop.forced, patience_s):
            break
    if left:
        for worker in workers:
            worker.release_claims(worker.leases.held())
    if problems:
        raise problems[0]


def _stop_with_parent(stop: Stop) -> None:
    """Stop a child process when its parent has ended, however it ended: then its input ends."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        stop.request()

    threading.Thread(target=watch, name="kesin-parent", daemon=True).start()
