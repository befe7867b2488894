"""Work that goes on beside the service, in threads that end when they are told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kesin.cli.demo.news import News
from kesin.foundation.problems import Problem

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
