"""What it takes to wait: the memory of a worker process all of whose ``async def`` handlers do.

`python -m bench.waiting STORE` is that process: it claims what is in the queue, lets every handler
wait until its leases were renewed, and prints its greatest size so far, before and then.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import kesin

HANDLERS = 1_000
LEASE_S = 3.0
HELD_S = 2.0  # a third of the lease is over, and all are renewed
PATIENCE_S = 120.0
MOST_MB = 200  # the aim
NAME = "waiting"


class Peak(NamedTuple):
    """The greatest resident size, in megabytes: with no job, and with all handlers waiting."""

    idle_mb: float
    waiting_mb: float


def measure(where: str) -> Peak:
    """Fill a queue, and start a process that waits over all of it."""
    with closing(kesin.open_store(where)) as store:
        queue = kesin.Queue(NAME, kesin.task_lifecycle(), store)
        queue.enqueue_many([kesin.NewJob({"number": number}) for number in range(HANDLERS)])
    command = [sys.executable, "-m", __spec__.name, where]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    return Peak(*map(float, done.stdout.split()))


def _wait(where: str) -> None:
    entered, all_wait = 0, threading.Event()

    async def handler(_job: kesin.Job) -> None:
        nonlocal entered
        entered += 1
        if entered == HANDLERS:
            all_wait.set()
        await asyncio.Event().wait()  # until it is cancelled

    queue = kesin.Queue(NAME, kesin.task_lifecycle(), kesin.open_store(where))
    worker = kesin.Worker(queue, handler, concurrency=HANDLERS, lease_seconds=LEASE_S, grace_s=0)
    print(_peak_mb())
    worker.start()
    if not all_wait.wait(PATIENCE_S):
        raise RuntimeError(f"{entered} of {HANDLERS} handlers began")
    threading.Event().wait(HELD_S)
    assert queue.stats().states["running"] == HANDLERS
    print(_peak_mb())
    worker.stop()
    worker.join()


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1_024


if __name__ == "__main__":
    _wait(sys.argv[1])
