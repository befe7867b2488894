"""The service of the demonstration, the same as that of `kesin serve`, its users and its key."""

import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from kesin.cli.commands.serve import supervisor_for
from kesin.cli.support.errors import CommandError
from kesin.cli.support.supervisor import WorkerSupervisor
from kesin.engine.access.accounts import Accounts
from kesin.engine.workload import Workload
from kesin.foundation.passwords import one_time_password
from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import PREFIX, Settings, load_settings
from kesin.foundation.terminal import say
from kesin.web.app import create_app
from kesin.web.server import Server, bind_sockets, build_server
from kesin.web.service import Service
from kesin.workloads.common.demo import DEMO_ACTOR, DemoPart, Pace
from kesin.workloads.common.stores import open_workload_stores

Workloads = Mapping[str, Workload]
Parts = Mapping[str, DemoPart]  # by the name of their queue

ADMIN: Final = "admin"
OPERATOR: Final = "ayse"
HOST: Final = "127.0.0.1"
GRACE_S: Final = 3.0
START_S: Final = 30.0
MAX_TMP_PATH: Final = 60  # of the 107 bytes of a socket's path, Chromium takes up to 46


class RunningService(NamedTuple):
    """A service that answers requests."""

    service: Service
    address: str
    supervisor: WorkerSupervisor | None
    server: Server
    thread: threading.Thread

    @property
    def alive(self) -> bool:
        return self.thread.is_alive()

    def stop(self) -> None:
        """Drain and end it; threads of requests that hang are left behind."""
        self.server.handle_exit(signal.SIGTERM, None)
        self.thread.join(GRACE_S + START_S)


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
        running = RunningService(service, address, supervisor, server, thread)
        thread.start()
        stack.callback(running.stop)
        pause, until = threading.Event(), time.monotonic() + START_S
        while not server.started:
            if not running.alive or time.monotonic() > until:
                raise CommandError("the service did not start")
            pause.wait(0.02)
        yield running


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


def demo_workloads(known: Workloads, parts: Parts, ready: Parts, pace: Pace) -> Workloads:
    """The workloads to serve, as their parts want them; without those that cannot run here."""
    left_out = parts.keys() - ready.keys()
    return {
        name: ready[name].adapt(workload, pace) if name in ready else workload
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
