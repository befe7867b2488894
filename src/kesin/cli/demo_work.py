"""The work of `kesin demo`: a lifecycle with quick retries, and handlers that misbehave on cue."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Final

from kesin.engine.answers import Answer, Done, Failed
from kesin.engine.queue import New
from kesin.lifecycle.budget import Backoff
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.lifecycle.task import task_lifecycle

LEASE_S: Final = 2
KINDS: Final = ("wrong address", *["busy at first"] * 3, *["good"] * 26)
_never = threading.Event()


def lifecycle() -> Lifecycle:
    """The plain lifecycle, in a hurry."""
    return task_lifecycle("demo", backoff=Backoff((0, 1)), lease_seconds=LEASE_S)


def parcels(count: int, *, twins: int, work_s: float) -> Iterator[New]:
    """Jobs to enqueue; the last ``twins`` of them repeat keys of earlier ones."""
    different = count - twins
    killers = (different // 3, different // 2)
    for number in range(count):
        which = number % different
        kind = "kills its worker once" if which in killers else KINDS[which % len(KINDS)]
        payload = {"parcel": which, "kind": kind, "work_s": round(work_s, 4)}
        yield New(payload, key=f"parcel-{which}")


def deliver(job: Job) -> Answer:
    """Deliver a parcel, if all goes well."""
    parcel = job.data
    _never.wait(parcel["work_s"])
    match parcel["kind"]:
        case "wrong address":
            return Failed("NO_SUCH_STREET", "there is no such street", category=Category.VALIDATION)
        case "busy at first" if job.attempt_count == 1:
            return Failed("NOBODY_HOME", "nobody opened", category=Category.TRANSIENT)
        case "kills its worker once" if job.attempt_count == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return Done({"delivered": parcel["parcel"]})
