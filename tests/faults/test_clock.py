"""Clocks that jump, by hours and years, between two calls and in the middle of one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest
from structlog.testing import capture_logs

from kesin.engine.access.accounts import Accounts
from kesin.engine.new_job import NewJob
from kesin.engine.queue import Queue
from kesin.engine.results import Done, Failed
from kesin.engine.sweeper import Sweeper
from kesin.engine.worker import Worker
from kesin.foundation.clock import LATEST_US, SystemClock, wall_clock_us
from kesin.foundation.ids import IdMaker
from kesin.foundation.permissions import system_actor
from kesin.lifecycle.model import Job
from kesin.store.directory import Directory
from kesin.store.sqlite.store import SqliteStore
from kesin.workloads.pdf.jobs.heartbeat import open_heartbeats
from tests.faults.cast import LEASE_S
from tests.faults.promise import check_promise
from tests.web.conftest import _quick_hashes  # noqa: F401  # a fixture

HOUR, YEAR = 3_600, 365 * 86_400
JUMPS_S = (0, 1, -1, LEASE_S + 1, -LEASE_S, HOUR, -HOUR, YEAR, -YEAR, 20 * YEAR, -20 * YEAR)
ROUNDS = 12
STAGES: Final = ("cap", "recover", "revive", "timeout")


class Jumpy(SystemClock):
    """Somebody turns the wall clock now and then, also while a call is made; waits are steady."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._start = self._now = wall_clock_us()
        self.latest = self._start
        self.steady = False

    def now(self) -> int:
        if not self.steady and self._random.random() < 0.4:
            self._now = self._start + self._random.choice(JUMPS_S) * 1_000_000
        self._now += 1_000
        self.latest = max(self.latest, self._now)
        return self._now

    def stop_jumping(self, later_s: float) -> None:
        """From now on it is right: all that was ever set to a time lies behind it."""
        self.steady, self._now = True, self.latest + round(later_s * 1_000_000)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_no_jump_loses_a_job_or_does_it_twice(place, seed):
    """Workers, sweepers and producers under one clock that jumps; a sweep comes amid the work."""
    clock, chance = Jumpy(seed), random.Random(seed)
    address = place.new()
    queue = Queue(address.name, address.rules, place.store, clock=clock)
    sweeper = Sweeper([queue])
    answered_ids: list[str] = []
    before = ""

    def handler(job: Job) -> Done | Failed:
        if chance.random() < 0.1:
            sweeper.sweep(STAGES)
        if chance.random() < 0.1:
            return Failed("LATER", "not now")
        return Done(job.payload)

    with capture_logs():
        for number in range(ROUNDS):
            outcomes = queue.enqueue_many(NewJob({"n": number}) for _ in range(8))
            ids = [outcome.id for outcome in outcomes]
            assert ids == sorted({*ids}), "ids fall"
            assert ids[0] > before, "ids fall"
            before = ids[-1]
            answered_ids += ids
            queue.claim("dies", limit=2)
            Worker(queue, handler, batch=5).run_once()
            sweeper.sweep(STAGES)
        clock.stop_jumping(2 * HOUR)
        for _ in range(2 * address.rules.max_attempts):
            sweeper.sweep(STAGES)
            Worker(queue, lambda job: Done(job.payload)).drain()
            clock.stop_jumping(2 * HOUR)
    report = check_promise(place.store, queue.name, queue.lifecycle, answered_ids)
    assert report.lost_claims > ROUNDS / 2  # else nothing was tried
    assert report.states["done"] > report.states["failed"]
    assert report.last_at < LATEST_US


def test_ids_rise_and_differ_when_the_clock_goes_back():
    maker = IdMaker(Jumpy(3), seed=3)
    ids = [one for _ in range(2_000) for one in maker.make(3)]
    assert ids == sorted(set(ids))


# Who may come in


@pytest.fixture
def store(tmp_path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "kesin.db")) as store:
        yield store


class Turned(SystemClock):
    """A wall clock somebody has set wrong."""

    def __init__(self) -> None:
        self.off_s = 0

    def now(self) -> int:
        return wall_clock_us() + self.off_s * 1_000_000


def test_no_jump_locks_anybody_out_for_ever(store):
    """Whoever was signed in may have to sign in again; a key goes on until its own end."""
    boss, clock = system_actor("cli:tests"), Turned()
    accounts = Accounts(Directory(store), clock)
    accounts.add_user(boss, "ayse", "correct-horse-battery", role="admin")
    key, _ = accounts.create_key(boss, "tests", ("read",), days=30)
    tokens = []
    for off_s in (0, YEAR, -YEAR, 0, -HOUR, 20 * YEAR, 0):
        clock.off_s = off_s
        token, _ = accounts.sign_in("ayse", "correct-horse-battery", "127.0.0.1")
        tokens.append(token)
        assert accounts.session_actor(token, "127.0.0.1") is not None
        assert (accounts.key_actor(key, "127.0.0.1") is None) is (off_s >= YEAR)
    clock.off_s = 40 * YEAR
    assert [accounts.session_actor(token, "127.0.0.1") for token in tokens] == [None] * len(tokens)


def test_a_sign_of_life_from_the_future_is_none(store):
    """Else a worker that died before the clock was set back would be thought alive for years."""
    signs, now = open_heartbeats(store), wall_clock_us()
    signs.record("dead", {}, lambda: now + YEAR * 1_000_000)
    signs.record("alive", {}, lambda: now + 1_000_000)
    assert [sign.worker for sign in signs.read(now) if sign.is_fresh] == ["alive"]
