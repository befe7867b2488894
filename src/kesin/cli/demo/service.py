"""The service of the demonstration: the very one of `kesin serve`, on a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TextIO

from fastapi import APIRouter

from kesin.cli.commands.serve import crew_of
from kesin.cli.demo.common import News, Pace
from kesin.cli.support.errors import Failure
from kesin.cli.support.output import say
from kesin.cli.support.supervisor import Crew
from kesin.engine.queue import Queue
from kesin.foundation.problems import Problem, Unavailable
from kesin.foundation.settings import PREFIX, Settings, load_settings
from kesin.lifecycle.model import Job
from kesin.store.open import open_stores
from kesin.web.app import create_app
from kesin.web.server import Server, bound, server_of
from kesin.web.service import Service
from kesin.workloads import Workload, WorkloadContext, workloads
from kesin.workloads.oci.api.routes import oci_router

HOST: Final = "127.0.0.1"
GRACE_S: Final = 3.0
START_S: Final = 30.0
LOG: Final = "kesin.log"
LONGEST_TMP: Final = 60  # of the 107 bytes of a socket's path, Chromium takes up to 46
# These say something about the machine; every other setting of the visitor's stays outside.
_OF_THE_MACHINE: Final = frozenset({"KESIN_PDF_CHROMIUM", "KESIN_PDF_SANDBOX"})


@dataclass(frozen=True, slots=True)
class Running:
    """A service that answers."""

    service: Service
    address: str
    crew: Crew | None
    server: Server
    thread: threading.Thread

    @property
    def alive(self) -> bool:
        """Whether it still does."""
        return self.thread.is_alive()

    @property
    def worker_pids(self) -> list[int]:
        """The processes that make PDFs."""
        return self.crew.pids if self.crew else []

    def stop(self) -> None:
        """Drain and end it; the threads of requests that hang are left behind."""
        self.server.handle_exit(signal.SIGTERM, None)
        self.thread.join(GRACE_S + START_S)


@contextmanager
def own_folder(*, keep: bool) -> Iterator[Path]:
    """A folder that is gone afterwards, unless it is kept; the environment names it meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="kesin-demo-"))
    before = dict(os.environ)
    for name in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        if name not in _OF_THE_MACHINE:
            del os.environ[name]
    scraps = _scraps(folder)
    os.environ |= {
        "KESIN_DATA_DIR": str(folder),
        "KESIN_GRACE_S": str(GRACE_S),
        "KESIN_SWEEP_S": "1",
        "TMPDIR": str(scraps),
    }
    try:
        yield folder
    finally:
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(scraps, ignore_errors=True)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _scraps(folder: Path) -> Path:
    """A folder for what a browser leaves lying about; the path of its socket must be short."""
    inside = folder / "tmp"
    if len(str(inside)) > LONGEST_TMP and os.access("/tmp", os.W_OK):  # noqa: S108
        return Path(tempfile.mkdtemp(prefix="kesin-", dir="/tmp"))
    inside.mkdir()
    return inside


@contextmanager
def serving(
    pace: Pace, left_out: frozenset[str], port: int | None, log: TextIO
) -> Iterator[Running]:
    """The service, with workers and sweeper, until the block ends."""
    settings = load_settings()
    store = open_stores(settings)
    try:
        with _sockets(settings, port) as sockets:
            known = _known(pace, left_out)
            crew = crew_of(settings, known, stderr=log.fileno())
            service = Service(settings, store, known, crew=crew)
            server = server_of(create_app(service), service, leave=lambda: None)
            thread = threading.Thread(
                target=server.run, args=(sockets,), name="kesin-server", daemon=True
            )
            where = f"http://{HOST}:{sockets[0].getsockname()[1]}"
            running = Running(service, where, crew, server, thread)
            thread.start()
            try:
                _await(running)
                yield running
            finally:
                running.stop()
    finally:
        store.close()


@contextmanager
def _sockets(settings: Settings, port: int | None) -> Iterator[list[socket.socket]]:
    """The port that was asked for; else the usual one, or any if that is taken."""
    with ExitStack() as stack:
        try:
            taken = stack.enter_context(bound(HOST, settings.port if port is None else port))
        except Unavailable:
            if port is not None:
                raise
            say(f"port {settings.port} is taken: the demonstration listens on another one")
            taken = stack.enter_context(bound(HOST, 0))
        yield taken


def _known(pace: Pace, left_out: frozenset[str]) -> Mapping[str, Workload]:
    """Every workload that can run here. Scripts have less time than in real life: one can watch."""
    found = {name: one for name, one in workloads().items() if name not in left_out}
    found["oci"] = replace(found["oci"], routes=lambda house: _hurried_router(house, pace))
    return found


class _Hurried(Queue):
    """Claims last for seconds, whatever a site's settings would give them."""

    lease_s = 0.0

    def claim(self, worker: str, **wanted: Any) -> list[Job]:
        return super().claim(worker, **{**wanted, "lease_seconds": self.lease_s})


def _hurried_router(house: WorkloadContext, pace: Pace) -> APIRouter:
    queue = house.queue
    hurried = _Hurried(queue.name, queue.lifecycle, queue.store, clock=queue.clock)
    hurried.lease_s = pace.lease_s
    return oci_router(replace(house, queue=hurried))


def _await(running: Running) -> None:
    pause, until = threading.Event(), time.monotonic() + START_S
    while not running.server.started:
        if not running.alive or time.monotonic() > until:
            raise Failure("the service did not start")
        pause.wait(0.02)


STREAM_S: Final = 7_200  # a demonstration nobody ends must not fill the disk
END_S: Final = 5.0


class Streams:
    """Everything that happens every few seconds."""

    def __init__(self, news: News) -> None:
        self._news = news
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._said: set[str] = set()

    def every(self, seconds: float | None, what: Callable[[], object]) -> None:
        """Do it every so many seconds; not at all for None."""
        if seconds is not None:
            self._start(lambda: self._repeat(seconds, what))

    def beside(self, loop: Callable[[threading.Event], object]) -> None:
        """Run a loop of its own that ends by this event."""
        self._start(lambda: loop(self._stop))

    def _start(self, run: Callable[[], object]) -> None:
        thread = threading.Thread(target=run, name="kesin-demo", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _repeat(self, seconds: float, what: Callable[[], object]) -> None:
        until = time.monotonic() + STREAM_S
        while not self._stop.wait(seconds) and time.monotonic() < until:
            try:
                what()
            except Problem as problem:  # a key revoked, a site removed: whoever looks did it
                self._complain(problem)

    def _complain(self, problem: Problem) -> None:
        """Once for each thing that is wrong."""
        if problem.message not in self._said and not self._stop.is_set():
            self._said.add(problem.message)
            self._news.tell(f"the demonstration was refused: {problem.message}")

    def end(self) -> None:
        """Stop all of it."""
        self._stop.set()
        for thread in self._threads:
            thread.join(END_S)


@contextmanager
def streaming(news: News) -> Iterator[Streams]:
    """Streams that end with the block."""
    streams = Streams(news)
    try:
        yield streams
    finally:
        streams.end()
