from contextlib import ExitStack
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job
from kesin.lifecycle.vocabulary import OWNED, STAGES, Stage
from kesin.store.postgres.store import PostgresStore
from kesin.store.redis.store import RedisStore
from tests.store.model.conftest import fresh_stores
from tests.store.model.lifecycles import ALL
from tests.store.model.lockstep import Lockstep

TENANTS = ("default", "ankara")
WORKERS = ("worker-1", "worker-2")
KEYS = st.sampled_from([None, "a", "b"])
SECONDS = st.sampled_from([61.0, 0.001, 3_600.0, 86_401.0, 8_640_000.0, -0.001, -61.0, -7_200.0])
FARTHEST_BACK_US = 43_200_000_000
SHARE = 0.06  # of the profile's examples: longer histories are in test_histories.py
LONG_SHARE = 0.2


class Machine(RuleBasedStateMachine):
    """Any order of actions; after each, every store stands where the reference stands."""

    claims = Bundle("claims")  # as workers remember them, lost or not
    postgres: PostgresStore
    redis: RedisStore
    lifecycle: Lifecycle

    def __init__(self):
        super().__init__()
        self.stack = ExitStack()
        self.ended: dict[str, str] = {}

    @initialize(target=claims, keys=st.lists(KEYS, min_size=1, max_size=4), limit=st.integers(1, 3))
    def open(self, keys, limit):
        stores = self.stack.enter_context(fresh_stores(self.postgres, self.redis))
        self.lockstep = Lockstep(self.lifecycle.name, self.lifecycle, stores)
        self.latest_us = self.lockstep.now
        self.lockstep.enqueue([self.lockstep.new_job(dedup_key=key) for key in keys])
        return multiple(*self.lockstep.claim(WORKERS[0], limit=limit))

    def teardown(self):
        try:
            if hasattr(self, "lockstep"):
                self.lockstep.compare_all()
        finally:
            self.stack.close()

    # Producers and time

    @rule(
        tenant=st.sampled_from(TENANTS),
        key=KEYS,
        attempts=st.integers(1, 3),
        delay_us=st.sampled_from([None, -1, 0, 60_000_000]),
        count=st.integers(1, 3),
    )
    def enqueue(self, tenant, key, attempts, delay_us, count):
        run_at = None if delay_us is None else self.lockstep.now + delay_us
        arguments = {"tenant": tenant, "dedup_key": key, "max_attempts": attempts, "run_at": run_at}
        self.lockstep.enqueue([self.lockstep.new_job(**arguments) for _ in range(count)])

    @rule(seconds=SECONDS)
    def let_time_pass_or_jump_back(self, seconds):
        self.lockstep.clock.advance(seconds)
        self.latest_us = max(self.latest_us, self.lockstep.now)
        earliest = self.latest_us - FARTHEST_BACK_US
        self.lockstep.clock.time_us = max(self.lockstep.now, earliest)

    # Workers

    @rule(
        target=claims,
        worker=st.sampled_from(WORKERS),
        limit=st.integers(1, 4),
        tenants=st.sampled_from([None, None, ["ankara"], ["ankara", "default"]]),
        lease_s=st.sampled_from([1.0, 60.0, 7_200.0]),
    )
    def claim(self, worker, limit, tenants, lease_s):
        before = dict(self.lockstep.jobs)
        claimed = self.lockstep.claim(worker, limit=limit, lease_s=lease_s, tenants=tenants)
        for job in claimed:
            assert before[job.id].phase != OWNED
            assert not self.lockstep.reference.paused & {"", job.tenant}
        return multiple(*claimed)

    @rule(claim=claims, data=st.data(), category=st.sampled_from(Category), dies=st.booleans())
    def answer(self, claim, data, category, dies):
        """Any of the worker's actions with the token in hand; it may die before the commit."""
        job = self.lockstep.jobs.get(claim.id, claim)
        codes = [code.name for code in self.lifecycle.errors.codes] or ["Surprise"]
        code = data.draw(st.sampled_from(codes), label="code")
        arguments = {"error_code": code, "error_category": category.value, "result": "1"}
        wake_at = self.lockstep.now + 1_000_000
        change = Change(claim.id, claim.claim_seq, run_at=wake_at, **arguments)
        action = data.draw(st.sampled_from(self._actions("worker", job.state)), label="action")
        [outcome] = self.lockstep.apply(action, [change], commit=not dies)
        held = job.phase == OWNED and job.claim_seq == claim.claim_seq
        assert held or outcome.result != "moved", "a claim that was lost moved the job"

    @rule(claim=claims)
    def renew(self, claim):
        self.lockstep.renew([(claim.id, claim.claim_seq)])

    @rule(claim=consumes(claims))
    def crash(self, claim):
        """The worker forgets everything and the store is not told: the lease has to run out."""
        self.lockstep.clock.advance(7_201)
        self.latest_us = max(self.latest_us, self.lockstep.now)
        self.sweep("recover", 1_000)

    # The sweeper, operators and producers

    @rule(stage=st.sampled_from(STAGES), limit=st.sampled_from([1, 1_000]))
    def sweep(self, stage: Stage, limit: int):
        for move in self.lifecycle.scheduled_moves:
            if move.stage == stage:
                due = self.lockstep.reference.sweep_candidates(move, now=self.lockstep.now)
                alike = self.lockstep.reference.same_order_everywhere(move, due)
                self.lockstep.sweep(move, limit=limit if alike else 1_000)

    @precondition(lambda self: self.lockstep.jobs)
    @rule(data=st.data(), count=st.integers(1, 3), role=st.sampled_from(["operator", "producer"]))
    def act(self, data, count, role):
        jobs = [
            data.draw(st.sampled_from(sorted(self.lockstep.jobs)), label="job")
            for _ in range(count)
        ]
        actions = self._actions(role, self.lockstep.jobs[jobs[0]].state)
        if actions:
            action = data.draw(st.sampled_from(actions), label="action")
            guards = [guard for move in self.lifecycle.actions[action] for guard in move.when]
            known = sorted({guard.names[0] for guard in guards if guard.kind == "option"})
            options = frozenset(name for name in known if data.draw(st.booleans(), label=name))
            arguments: dict[str, Any] = {
                "payload": '{"again":1}',
                "error_code": "BY_HAND",
                "max_attempts": count,
            }
            changes = [Change(job_id, **self._as_taken(action, arguments)) for job_id in jobs]
            self.lockstep.apply(action, changes, role=role, actor=role, options=options)

    @rule(tenant=st.sampled_from(["", *TENANTS]), on=st.booleans())
    def pause_or_resume(self, tenant, on):
        (self.lockstep.pause if on else self.lockstep.resume)(tenant)

    def _actions(self, role, state: str) -> list[str]:
        """The actions that leave this state first, so that small examples do something."""
        passed_over = {"enqueue", *(move.action for move in self.lifecycle.claims)}
        actions = [
            action for action in self.lifecycle.actions_of(role) if action not in passed_over
        ]
        leave = lambda action: any(state in move.sources for move in self.lifecycle.actions[action])  # noqa: E731
        return sorted(actions, key=lambda action: not leave(action))

    def _as_taken(self, action: str, arguments: dict[str, Any]) -> dict[str, Any]:
        replaces = any(move.payload == "replace" for move in self.lifecycle.actions[action])
        return arguments if replaces else {**arguments, "payload": None}

    # What always holds

    @invariant()
    def rows_are_what_the_reference_says(self):
        if hasattr(self, "lockstep"):
            self.lockstep.compare_rows()

    @invariant()
    def every_row_keeps_the_promise(self):
        jobs: dict[str, Job] = self.lockstep.jobs if hasattr(self, "lockstep") else {}
        for job in jobs.values():
            state = self.lifecycle.state[job.state]
            assert 0 <= job.attempt_count - job.attempt_base <= job.max_attempts
            assert job.return_count <= self.lifecycle.max_returns
            assert (job.phase == OWNED) == (job.worker is not None)
            assert state.working or job.phase != OWNED
            assert self.ended.get(job.id, job.state) == job.state, "it left a terminal state"
            assert self.lockstep.reference.successes[job.id] <= 1
            if state.terminal:
                self.ended[job.id] = job.state
        states = [self.lifecycle.state[job.state] for job in jobs.values()]
        slots = [state.name for state in states if state.exclusive]
        assert len(slots) == len(set(slots)), "two jobs are in one exclusive state"
        keys = [
            (job.tenant, job.dedup_key)
            for job, state in zip(jobs.values(), states, strict=True)
            if state.holds_key and job.dedup_key
        ]
        assert len(keys) == len(set(keys)), "two jobs hold one key"

    @invariant()
    def a_job_is_claimed_by_one_at_a_time(self):
        reference = self.lockstep.reference if hasattr(self, "lockstep") else None
        for events in reference.history.values() if reference else ():
            owned = False
            for event in events:
                assert not (owned and event.claim == 1), "claimed while it was claimed"
                owned = event.claim == 1 or (owned and event.claim == -1)


@pytest.mark.parametrize("name", ALL)
def test_no_order_of_calls_breaks_the_promise(
    name: str,
    postgres_store: PostgresStore,
    redis_store: RedisStore,
    request: pytest.FixtureRequest,
):
    machine = type(
        name,
        (Machine,),
        {"postgres": postgres_store, "redis": redis_store, "lifecycle": ALL[name]()},
    )
    share = LONG_SHARE if request.config.getoption("--long") else SHARE
    count = round(settings.default.max_examples * share)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=count, stateful_step_count=25)
    )
