"""Jobs that harm whoever works on them, and a process that works until it meets one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from kesin.engine.results import Act, Done, Failed, Wait
from kesin.engine.worker import Worker
from kesin.lifecycle.model import Job
from tests.faults.cast import Address, die

LONG = 1024 * 1024  # many times what is kept; masking takes a quarter of a second a megabyte


class Unspeakable(Exception):
    """Its message is a trap."""

    def __str__(self) -> NoReturn:
        raise RuntimeError("no words")


class Unshowable:
    """An answer that cannot even be named."""

    def __repr__(self) -> NoReturn:
        raise RuntimeError("no words")


def throws(problem: BaseException) -> Callable[[Job], Any]:
    def handler(_job: Job) -> NoReturn:
        raise problem

    return handler


def recurses(job: Job) -> Any:
    return recurses(job)


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


# What is done to a worker → how the job's error is called.
POISONS: dict[str, tuple[Callable[[Job], Any], str]] = {
    "raises": (throws(ValueError("no")), "ValueError"),
    "raises without words": (throws(Unspeakable()), "Unspeakable"),
    "says too much": (throws(ValueError("x" * LONG)), "ValueError"),
    "recurses": (recurses, "RecursionError"),
    "ends the process": (lambda _job: sys.exit("enough"), "SystemExit"),
    "interrupts": (throws(KeyboardInterrupt()), "KeyboardInterrupt"),
    "is cancelled": (throws(GeneratorExit()), "GeneratorExit"),
    "answers nonsense": (lambda _job: True, "BAD_ANSWER"),
    "answers what has no words": (lambda _job: Unshowable(), "BAD_ANSWER"),
    "answers what is no JSON": (lambda _job: Done({1, 2}), "BAD_ANSWER"),
    "answers too deep": (lambda _job: Done(deep()), "BAD_ANSWER"),
    "fails without a code": (lambda _job: Failed(None), "BAD_ANSWER"),  # type: ignore[arg-type]
    "waits forever": (lambda _job: Wait(float("inf"), action="retry"), "BAD_ANSWER"),
    "waits too long": (lambda _job: Wait(1e13, action="retry"), "BAD_ANSWER"),
    "moves where none is": (lambda _job: Act("fly"), "BAD_ANSWER"),
}


def work_or_die(address: Address, pipe: Connection, poison: str, ahead_s: float) -> None:
    """Work in batches as large as they get; the poison job kills the process each time."""
    with closing(address.open()) as store:
        queue = address.queue(store, ahead_s=ahead_s)

        def handler(job: Job) -> None:
            if job.id == poison:
                die()

        pipe.send(Worker(queue, handler).drain())
