"""Kesin: a worker with lanes, and a sweeper beside it in every process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import closing
from functools import cache

import kesin
from bench.chaos.journal import Journal
from bench.chaos.settings import AT_ONCE, LEASE_S, LOOK_S
from bench.chaos.sides.side import Fate, State, do
from kesin.engine.replay import verify
from kesin.engine.worker_thread import MAX_CLAIM_BATCH
from kesin.foundation.logs import set_up_logs

PACKAGE = "kesin"
QUEUE = "chaos"
STATES: dict[str, State] = {"ready": "waiting", "running": "running", "done": "done", "failed": "failed"}


@cache
def queue_of(where: str) -> kesin.Queue:
    set_up_logs(level="error")
    return kesin.Queue(QUEUE, kesin.task_lifecycle(), kesin.open_store(where))


def prepare(where: str) -> None:
    queue_of(where)


def send(where: str, count: int) -> Iterable[object]:
    jobs = [kesin.NewJob({"n": number}) for number in range(count)]
    return [outcome.id for outcome in queue_of(where).enqueue_many(jobs)]


def work(where: str, journal: Journal, seconds: float, *, batch: int = MAX_CLAIM_BATCH) -> None:
    queue = queue_of(where)
    sweeper = kesin.Sweeper([queue], every_s={"recover": LOOK_S, "cap": LOOK_S})
    threading.Thread(target=sweeper.run, daemon=True).start()
    kesin.Worker(
        queue,
        lambda job: do(journal, job.id, seconds),  # type: ignore[func-returns-value]
        threads=AT_ONCE,
        batch=batch,
        lease_seconds=LEASE_S,
        poll_s=LOOK_S,
    ).run()


def left(where: str) -> int:
    states = queue_of(where).stats().states
    return states["ready"] + states["running"]


def fates(where: str) -> dict[str, Fate]:
    """Of each job; and its history must lead to what is there."""
    with closing(queue_of(where).store) as store:
        audit = verify(store, QUEUE)
        if not audit:
            raise RuntimeError(f"replay differs: {audit.differences}")
        return {
            job.id: Fate(STATES[job.state], tuple(event.at / 1e6 for event in events if event.to_state == "done"))
            for job, events in store.scan(QUEUE)
        }
