"""A process of a run: a worker, or the producer. It ends when whoever started it ends."""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import cast

from bench.chaos.journal import Journal
from bench.chaos.settings import BATCH, BATCH_EVERY_S
from bench.chaos.sides.side import Side

PR_SET_PDEATHSIG = 1


def side_named(name: str) -> Side:
    return cast("Side", import_module(f"bench.chaos.sides.{name}_side"))


def produce(side: Side, where: str, journal: Journal, jobs: int) -> None:
    """Send jobs in small batches, each until the queue says that it has it."""
    for first in range(0, jobs, BATCH):
        for job in _sent(side, where, min(BATCH, jobs - first)):
            journal.note("sent", job)
        time.sleep(BATCH_EVERY_S)


def _sent(side: Side, where: str, count: int) -> Iterable[object]:
    while True:
        try:
            return side.send(where, count)
        except Exception as problem:  # noqa: BLE001  # the server is away, however it is told
            print(f"not sent: {problem!r}", file=sys.stderr)
            time.sleep(BATCH_EVERY_S)


def _end_with_our_parent() -> None:
    """However it ends, and even if this process is stopped."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    part, name, where, path, number = sys.argv[1:]
    _end_with_our_parent()
    side, journal = side_named(name), Journal(Path(path))
    if part == "work":
        side.work(where, journal, float(number))
    else:
        produce(side, where, journal, int(number))


if __name__ == "__main__":
    main()
