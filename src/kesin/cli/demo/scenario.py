"""The demonstration: the service of `kesin serve` with the workloads' parts, and what it prints."""

import os
import random
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, redirect_stderr
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from kesin.cli.commands.audit import print_reports, replay_queues
from kesin.cli.commands.serve import supervisor_for
from kesin.cli.support.errors import CommandError
from kesin.cli.support.inspection import open_for_reading
from kesin.cli.support.signals import Stop, stop_on_signals
from kesin.cli.support.supervisor import WorkerSupervisor
from kesin.engine.access.accounts import Accounts
from kesin.engine.queue import Queue
from kesin.engine.workload import Workload
from kesin.foundation import terminal
from kesin.foundation.logs import set_up_logs
from kesin.foundation.passwords import one_time_password
from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import DATABASE_FILE, PREFIX, Settings, load_settings
from kesin.foundation.terminal import say
from kesin.store.open import open_store
from kesin.web.app import create_app
from kesin.web.dashboard.state_groups import LABELS, StateGroup, state_groups
from kesin.web.server import bind_sockets, build_server
from kesin.web.service import Service
from kesin.workloads import workloads
from kesin.workloads.common import demo
from kesin.workloads.common.demo import DEMO_ACTOR, LOG_FILE, DemoContext, DemoPart, TourStop
from kesin.workloads.common.stores import open_workload_stores

Workloads = Mapping[str, Workload]
Parts = Mapping[str, DemoPart]  # by the name of their queue

ADMIN: Final = "admin"
OPERATOR: Final = "ayse"
HOST: Final = "127.0.0.1"
GRACE_S: Final = 3.0
START_S: Final = 30.0
MAX_TMP_PATH: Final = 60  # of the 107 bytes of a socket's path, Chromium takes up to 46
COUNTS_EVERY_S: Final = 5.0
TICK_S: Final = 0.5
PATIENCE_S: Final = 180.0  # for all of it to come to rest
SEED: Final = 7
ON_THE_WAY: Final[tuple[StateGroup, ...]] = ("waiting", "working", "retrying")


class RunningService(NamedTuple):
    """A service that answers requests."""

    service: Service
    address: str
    supervisor: WorkerSupervisor | None
    thread: threading.Thread


def run_demo(seconds: float | None, port: int | None, *, attended: bool, keep: bool) -> tuple[bool, bool]:
    """Set it up, show it, take it down; whether it ended well, and with a request that hangs."""
    goes_on = attended or seconds is not None
    known = workloads()
    parts = load_parts(known)
    machine_settings = {name for part in parts.values() for name in part.machine_settings}
    ready: dict[str, DemoPart] = {}
    with demo_folder(machine_settings, keep=keep) as folder, stop_on_signals() as stop:
        try:
            with (folder / LOG_FILE).open("w", encoding="utf-8") as log, redirect_stderr(log):
                set_up_logs("console", "info")
                ready |= _find_ready(parts)
                served = demo_workloads(known, parts, ready, goes_on=goes_on)
                with run_service(served, port, log) as running, closing(demo.Background()) as threads:
                    accounts = running.service.accounts
                    passwords, shop_key = create_access(accounts, known, parts)
                    context = DemoContext(
                        address=running.address,
                        accounts=accounts,
                        goes_on=goes_on,
                        background=threads,
                        chance=random.Random(SEED),  # a story, no secret
                        shop_key=shop_key,
                        wait=stop.wait,
                    )
                    _show(running, context, ready, passwords, stop, seconds)
            good = _print_summary(folder / DATABASE_FILE, ready)
        finally:
            if keep:
                print_kept(folder, parts.values())
            else:
                for part in ready.values():
                    part.clean_up()
    return good, running.thread.is_alive()


def load_parts(known: Mapping[str, Workload]) -> dict[str, DemoPart]:
    """The parts that the workloads bring, by the name of their queue."""
    parts: dict[str, DemoPart] = {}
    for name, workload in known.items():
        if workload.demo is None:
            continue
        part = workload.demo()
        if not isinstance(part, DemoPart):
            raise CommandError(f"the demo of the workload {name!r} is not a DemoPart")
        parts[name] = part
    return parts


def _find_ready(parts: Mapping[str, DemoPart]) -> dict[str, DemoPart]:
    """The parts that this machine can show, in the order they begin; prints what it lacks."""
    ready: dict[str, DemoPart] = {}
    for name, part in parts.items():
        try:
            note = part.check_machine()
            ready[name] = part
        except Unavailable as problem:
            note = problem.message
        if note:
            say(f"note: {note}")
    return dict(sorted(ready.items(), key=lambda item: item[1].slow_start))


def _show(  # noqa: PLR0917  # it is the whole demonstration
    running: RunningService,
    context: DemoContext,
    parts: Mapping[str, DemoPart],
    passwords: Mapping[str, str],
    stop: Stop,
    seconds: float | None,
) -> None:
    """Run the parts until a stop is requested, the time is over, or all has come to rest."""
    for part in parts.values():
        part.set_up(context)
    print_title("Kesin is running, on this machine only")
    say(f"  address   {running.address}/dashboard")
    say(f"  sign in   {ADMIN}   {passwords[ADMIN]}   (may do everything)")
    say(f"  or as     {OPERATOR}    {passwords[OPERATOR]}   (an operator)")
    if parts:
        print_title("New work arrives")
    for part in parts.values():
        part.begin(context)
    pids = running.supervisor.pids if running.supervisor else []
    print_tour(context, parts.values(), pids)
    say()
    begin = time.monotonic()
    with open_line() as show:
        while True:
            counts = count_jobs(running.service.queues, parts)
            shown = ((title, {LABELS[n]: groups[n] for n in LABELS}) for title, groups in counts.items())
            show(" | ".join(f"{title}: {terminal.format_counts(n)}" for title, n in shown))
            lasted = time.monotonic() - begin
            if not running.thread.is_alive():
                raise CommandError(f"the service stopped unexpectedly: {demo.TRY_AGAIN}")
            if stop.requested or (seconds is not None and lasted >= seconds):
                break
            if not context.goes_on:
                if not any(groups[name] for groups in counts.values() for name in ON_THE_WAY):
                    break
                if lasted > PATIENCE_S:
                    raise CommandError(f"some jobs did not end within {PATIENCE_S:g} s")
            stop.wait(TICK_S)
    say("\nstopping: running jobs may finish, and the others are released")


@contextmanager
def demo_folder(machine_settings: Iterable[str], *, keep: bool) -> Iterator[Path]:
    """A data folder, deleted unless it is kept; meanwhile only settings of the machine are set."""
    machine_settings = frozenset(machine_settings)
    folder = Path(tempfile.mkdtemp(prefix="kesin-demo-"))
    before = dict(os.environ)
    for name in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        if name not in machine_settings:
            del os.environ[name]
    tmp = _tmp_folder(folder)
    os.environ |= {"KESIN_DATA_DIR": str(folder), "TMPDIR": str(tmp)}
    os.environ |= {"KESIN_GRACE_S": str(GRACE_S), "KESIN_SWEEP_S": "1"}
    try:
        yield folder
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(tmp, ignore_errors=True)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _tmp_folder(folder: Path) -> Path:
    """A folder for temporary files of a browser; the path of its socket must be short."""
    inside = folder / "tmp"
    if len(str(inside)) > MAX_TMP_PATH and os.access("/tmp", os.W_OK):  # noqa: S108
        return Path(tempfile.mkdtemp(prefix="kesin-", dir="/tmp"))
    inside.mkdir()
    return inside


@contextmanager
def run_service(known: Workloads, port: int | None, log: TextIO) -> Iterator[RunningService]:
    """Run the service with workers and sweeper until the block ends."""
    settings = load_settings()
    with ExitStack() as stack:
        store = stack.enter_context(closing(open_workload_stores(settings, known.values())))
        sockets = stack.enter_context(_sockets(settings, port))
        supervisor = supervisor_for(settings, known, stderr=log.fileno())
        service = Service(settings, store, known, supervisor=supervisor)
        server = build_server(create_app(service), service, leave=lambda _: None)
        run = partial(server.run, sockets)
        thread = threading.Thread(target=run, name="kesin-server", daemon=True)
        address = f"http://{HOST}:{sockets[0].getsockname()[1]}"
        thread.start()
        # Drained at the end; threads of requests that hang are left behind.
        stack.callback(thread.join, GRACE_S + START_S)
        stack.callback(server.handle_exit, signal.SIGTERM, None)
        pause, until = threading.Event(), time.monotonic() + START_S
        while not server.started:
            if not thread.is_alive() or time.monotonic() > until:
                raise CommandError("the service did not start")
            pause.wait(0.02)
        yield RunningService(service, address, supervisor, thread)


@contextmanager
def _sockets(settings: Settings, port: int | None) -> Iterator[list[socket.socket]]:
    """The requested port; otherwise the usual one, or any free one if that is taken."""
    with ExitStack() as stack:
        try:
            taken = stack.enter_context(bind_sockets(HOST, settings.port if port is None else port))
        except Unavailable:
            if port is not None:
                raise
            say(f"port {settings.port} is in use: the demonstration listens on another one")
            taken = stack.enter_context(bind_sockets(HOST, 0))
        yield taken


def demo_workloads(known: Workloads, parts: Parts, ready: Parts, *, goes_on: bool) -> Workloads:
    """The workloads to serve, as their parts want them; without those that cannot run here."""
    left_out = parts.keys() - ready.keys()
    return {
        name: ready[name].adapt(workload, goes_on=goes_on) if name in ready else workload
        for name, workload in known.items()
        if workload.group not in left_out
    }


def create_access(accounts: Accounts, known: Workloads, parts: Parts) -> tuple[dict[str, str], str]:
    """Create an admin, an operator of the parts' queues, and the shop's key if a part needs it."""
    passwords = {ADMIN: one_time_password(), OPERATOR: one_time_password()}
    queues = tuple(name for name, workload in known.items() if workload.group in parts)
    scopes = tuple(scope for part in parts.values() for scope in part.scopes)
    add = partial(accounts.add_user, DEMO_ACTOR, all_sites=True)
    add(ADMIN, passwords[ADMIN], role="admin")
    add(OPERATOR, passwords[OPERATOR], role="operator", queues=queues)
    if not scopes:
        return passwords, ""
    key, _ = accounts.create_key(DEMO_ACTOR, "order entry", scopes, days=1)
    return passwords, key


def print_title(text: str) -> None:
    if terminal.on_terminal():
        terminal.console().print(f"\n[bold]{text}[/bold]")
    else:
        say(f"\n{text}")


def print_tour(context: DemoContext, parts: Iterable[DemoPart], pids: list[int]) -> None:
    print_title("A tour: open these pages, in any order")
    pages = f"{context.address}/dashboard"
    more = ": new jobs keep arriving" if context.goes_on else ""
    stops = [TourStop("The overview", pages, f"The numbers change while you watch{more}.")]
    stops += chain.from_iterable(part.tour(pages) for part in parts)
    if pids:
        text = f"In another terminal: kill -9 {pids[0]}   Another process takes its place."
        stops.append(TourStop("Kill a worker", f"{pages}/workers", text))
    text = "As admin: the page lists every sign-in and everything that you did."
    stops.append(TourStop("Who did what", f"{pages}/audit", text))
    for number, stop in enumerate(stops, 1):
        say(f"  {number}. {stop.title}\n     {stop.page}\n     {stop.text}")


def count_jobs(queues: Mapping[str, Queue], parts: Parts) -> dict[str, Counter[StateGroup]]:
    """How many jobs of each part are waiting, working and so on."""
    counts: dict[str, Counter[StateGroup]] = {}
    for name, part in parts.items():
        group_of, groups = state_groups(queues[name].lifecycle), Counter[StateGroup]()
        for state, n in queues[name].stats().states.items():
            groups[group_of[state]] += n
        counts[part.title] = groups
    return counts


@contextmanager
def open_line() -> Iterator[Callable[[str], object]]:
    """What shows the counts: a line that is redrawn on a terminal, else one every few seconds."""
    if not terminal.on_terminal():
        next_s, last = 0.0, ""

        def show(line: str) -> None:
            nonlocal next_s, last
            if time.monotonic() >= next_s and last != line:
                next_s, last = time.monotonic() + COUNTS_EVERY_S, line
                say(line)

        yield show
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=terminal.console(), auto_refresh=False, redirect_stderr=False) as live:
        yield lambda line: live.update(Text(f"{line} (Ctrl-C stops it)"), refresh=True)


def _print_summary(database: Path, parts: Parts) -> bool:
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
    say("the history and the jobs agree" if agree else "the history and the jobs DIFFER")
    return agree


def print_kept(folder: Path, parts: Iterable[DemoPart]) -> None:
    print_title(f"Kept in {folder}")
    say(f"  see it again     KESIN_DATA_DIR={folder} kesin serve   (the same passwords)")
    for part in parts:
        for label, path in part.kept_files(folder):
            say(f"  {label:<16} {path}")
    say(f"  the log          {folder / LOG_FILE}")
