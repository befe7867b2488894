"""`kesin demo`: a short tour of engine and service, on a file that is gone afterwards."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kesin.cli.failures import FAILED, Failure

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from kesin.cli.processes import Processes
    from kesin.cli.signals import Stop
    from kesin.engine.queue import Queue
    from kesin.store.contract import Store

JOBS: Final = 2_000
TWINS: Final = 150
PROCESSES: Final = 2
THREADS: Final = 2
OVERHEAD_S: Final = 5.0  # starting, the lease of the dead, what comes after
TICK_S: Final = 0.1
PATIENCE_S: Final = 90.0
PDFS: Final = "artifacts/pdfs"


def demo(
    seconds: Annotated[
        float, typer.Option("--for", min=1, max=600, metavar="SECONDS", help="About so long.")
    ] = 12.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the database there, to look around in.")
    ] = False,
) -> None:
    """Take a tour: jobs, failures, a killed worker, an approval, a crashing script, invoices.

    Everything happens in a temporary folder, which is gone afterwards unless you --keep it.
    """
    from kesin.cli.output import say
    from kesin.cli.signals import stop_on_signals
    from kesin.foundation.logs import set_up_logs
    from kesin.store.open import open_store

    set_up_logs(level="error")
    with _folder(keep=keep) as folder, stop_on_signals(children=True) as stop:
        store = open_store(folder / "kesin.db")
        try:
            _prove()
            good = (
                _parcels(store, folder, stop, seconds)
                and _order(store, folder)
                and _conversions(store)
                and _invoices(store, folder)
                and _audit(store)
            )
            _serve(store, folder)
        finally:
            store.close()
    if keep:
        say(f"\nkept: KESIN_DATA_DIR={folder} kesin stats")
        if (folder / PDFS).is_dir():
            say(f"the PDFs: {folder / PDFS}")
    if not good:
        raise typer.Exit(FAILED)


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    if keep:
        yield Path(tempfile.mkdtemp(prefix="kesin-demo-"))
        return
    with tempfile.TemporaryDirectory(prefix="kesin-demo-") as name:
        yield Path(name)


def _title(text: str) -> None:
    from kesin.cli.output import console, on_terminal, say

    if on_terminal():
        console().print(f"\n[bold]{text}[/bold]")
    else:
        say(f"\n{text}")


def _prove() -> None:
    from kesin.cli.demo_work import lifecycle
    from kesin.cli.names import registry
    from kesin.cli.output import say
    from kesin.lifecycle.prove import prove

    _title("1. Every lifecycle is proved to end before a job may enter")
    for rules in (*(make() for make in registry().values()), lifecycle()):
        say(f"   {prove(rules)}")


def _parcels(store: Store, folder: Path, stop: Stop, seconds: float) -> bool:
    from kesin.cli.demo_work import LEASE_S, lifecycle, parcels
    from kesin.cli.output import say
    from kesin.engine.queue import BadInput, Queue

    queue = Queue("demo", lifecycle(), store)
    work_s = max(seconds - OVERHEAD_S, 0.5) * PROCESSES * THREADS / JOBS
    _title(f"2. {JOBS} parcels go in, {TWINS} of them twice")
    answers = queue.enqueue_many(parcels(JOBS, twins=TWINS, work_s=work_s), actor="demo")
    results = [one.result for one in answers if not isinstance(one, BadInput)]
    inserted = results.count("inserted")
    say(f"   inserted {inserted}, duplicates {results.count('duplicate')}")

    _title(f"3. {PROCESSES} worker processes deliver them; one is killed on the way")
    with (folder / "workers.log").open("wb") as log:
        crew = _crew(folder, log.fileno())
        with _bar(inserted) as show:
            try:
                _watch(queue, crew, stop, inserted, show)
            finally:
                crew.kill()
    states = store.stats("demo").states
    deliveries = sum(flow.n for flow in store.flows("demo") if flow.move == "complete")
    say(f"   {inserted} went in, {states['done']} were delivered, {states['failed']} failed")
    lost, twice = inserted - sum(states.values()), deliveries - states["done"]
    say(f"   {lost} were lost, {twice} delivered twice")
    say(f"   (what a dead worker held came back when its lease of {LEASE_S} s was over)")
    return lost == 0 and twice == 0


def _crew(folder: Path, log: int) -> Processes:
    from kesin.cli.processes import Processes

    here = "kesin.cli.demo_work"
    command = [sys.executable, "-m", "kesin.cli", "worker", "demo", "--child"]
    options = [f"--handler={here}:deliver", f"--lifecycle={here}:lifecycle", f"--threads={THREADS}"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("KESIN_")}
    env = {**own, "KESIN_DATA_DIR": str(folder)}
    return Processes([*command, *options], PROCESSES, grace_s=1.0, env=env, stderr=log)


class _Show:
    """The progress on a terminal; elsewhere only what happens is told."""

    def __init__(self, bar: Progress | None, task: TaskID | None) -> None:
        self._bar = bar
        self._task = task

    def tell(self, text: str) -> None:
        """Something happened."""
        from kesin.cli.output import say

        if self._bar is None:
            say(f"   {text}")
        else:
            self._bar.console.print(f"   {text}")

    def update(self, ended: int, states: str) -> None:
        """So it stands."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=ended, description=f"   {states}")


@contextmanager
def _bar(total: int) -> Iterator[_Show]:
    from kesin.cli.output import console, on_terminal

    if not on_terminal():
        yield _Show(None, None)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(), transient=True) as bar:
        yield _Show(bar, bar.add_task("", total=total))


def _watch(queue: Queue, crew: Processes, stop: Stop, total: int, show: _Show) -> None:
    """Tend the workers, sweep, kill one of them mid-way; until every job has ended."""
    from kesin.cli.output import tally
    from kesin.engine.sweeper import Sweeper

    sweeper = Sweeper([queue])
    until = time.monotonic() + PATIENCE_S
    victim: int | None = None
    alive: set[int] = set()
    while True:
        crew.tend()
        for pid in alive - {*crew.pids, victim}:
            show.tell(f"worker {pid} was killed by a job; another takes its place")
        alive = set(crew.pids)
        seen = queue.stats()
        ended = seen.states["done"] + seen.states["failed"]
        show.update(ended, tally(seen.states))
        if ended == total:
            return
        if victim is None and ended > total * 0.4 and crew.pids:
            victim = crew.pids[0]
            os.kill(victim, signal.SIGKILL)
            show.tell(f"worker {victim} was killed with SIGKILL; another takes its place")
        recovered = sweeper.sweep(("cap", "recover")).total
        if recovered:
            show.tell(f"the sweeper took back {recovered} jobs of dead workers")
        if stop.wait(TICK_S):
            raise KeyboardInterrupt
        if time.monotonic() > until:
            raise Failure(f"only {ended} of {total} jobs ended within {PATIENCE_S:g} s")


def _order(store: Store, folder: Path) -> bool:
    from kesin.cli.output import say

    _title("4. An order for the saw waits for a person, is planned and cut")
    try:
        from kesin.cli.demo_optiplan import cut_order
    except ImportError as problem:
        say(f"   left out: {problem.name} is missing (pip install 'kesin[optiplan]')")
        return True
    if not hasattr(os, "pidfd_open"):
        say("   left out: the optimiser is started on Linux only")
        return True
    return cut_order(store, folder)


def _conversions(store: Store) -> bool:
    from kesin.cli.demo_oci import ROWS, sell

    _title(f"5. {ROWS} phone sales go to Google Ads, by a script that fails and crashes")
    return sell(store)


def _invoices(store: Store, folder: Path) -> bool:
    from kesin.cli.output import say

    _title("6. Invoices become PDFs, away from whoever asks for them")
    try:
        from kesin.cli.demo_pdf import print_invoices
        from kesin.workloads.pdf.errors import RenderFailed
    except ImportError as problem:
        say(f"   left out: {problem.name} is missing (pip install 'kesin[pdf]')")
        return True
    try:
        return print_invoices(store, folder)
    except RenderFailed as problem:
        say(f"   left out: {problem.message}")
        return True


def _audit(store: Store) -> bool:
    from kesin.cli.audit import print_reports, verified
    from kesin.cli.jobs import print_history
    from kesin.cli.output import print_table
    from kesin.cli.stats import COLUMNS, queue_record, rows

    names = store.queues()
    _title("7. One parcel that was in the hands of a dead worker")
    job = _recovered(store)
    if job is not None:
        print_history(store.events(job), None)
    _title("8. What is in the store, and does the history say the same?")
    print_table(COLUMNS, rows([queue_record(store, name) for name in names]))
    reports = [verified(store, name, lambda _: None) for name in names]
    print_reports(reports)
    return not any(report["different"] for report in reports)


def _serve(store: Store, folder: Path) -> None:
    from kesin.cli.output import say, tally

    _title("9. The same store behind `kesin serve`, for those who may")
    try:
        from kesin.cli.demo_service import ask_the_service
        from kesin.engine.accounts import Accounts
        from kesin.foundation.access import system
        from kesin.store.directory import Directory

        accounts = Accounts(Directory(store))
        key, kept = accounts.create_key(system("demo"), "the tour", ["read"], days=1)
    except ImportError as problem:
        say(f"   left out: {problem.name} is missing (pip install 'kesin[web]')")
        return
    stranger, stats = ask_the_service(folder, key)
    say(f"   without a key: {stranger}")
    say(f"   with the key kesin_{kept.id}_…: {tally(stats['states'])} in {stats['queue']}")


def _recovered(store: Store) -> str | None:
    from kesin.store.contract import Filter

    cursor: str | None = None
    while True:
        page = store.jobs("demo", Filter(states=("done",)), limit=1_000, cursor=cursor)
        for job in page.jobs:
            if job.attempt_count > 1:
                moves = [event.move for event in store.events(job.id)]
                if "recover" in moves:
                    return job.id
        if page.cursor is None:
            return None
        cursor = page.cursor
