import os
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest

from kesin.lifecycle.declare import Move
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Change, Job, MoveContext, declared_edges, failing_guard
from kesin.lifecycle.vocabulary import OWNED, PRIORITIES, Role
from kesin.store.contract import Store
from kesin.store.records import Filter, ScheduleRow
from tests.store.model.lifecycles import ALL
from tests.store.model.lockstep import Lockstep
from tests.store.scene import UNKNOWN_ID

STEPS = {"optiplan": 1_000, "oci_adjustments": 1_000}  # the longest ways to the end
FEWER_STEPS = 550
# Of these steps in the short form: as many as it takes to make most moves.
SHORT_SHARE = {"optiplan": 0.7, "oci_adjustments": 0.5, "oci": 0.7, "pdf": 0.15, "ferry": 0.35}
SMALLER_SHARE = 0.4
IN_OTHERS = {"task", "three_at_once"}  # what they do, lifecycles with more words do as well
SHARE_ON_SERVERS = 0.15  # the same where PostgreSQL and Redis take part
SEEDS = range(int(os.environ.get("KESIN_HISTORIES", "3")))
COMPARE_EVERY = 125
MOST_JOBS = 150
TENANTS = ("default", "ankara", "izmir", "van")
SCHEDULES = ("hourly", "nightly", "weekly")
WORKERS = ("worker-1", "worker-2", "worker-3")
DAY_S = 86_400
FARTHEST_BACK_S = DAY_S // 2  # a job may be moved by a clock that is so much behind
Edge = tuple[str, str, str]  # the name of a move, from, to


class Chance:
    """A seeded adversary: it mostly asks for what could be, and often enough for what could not."""

    def __init__(self, seed: int, lockstep: Lockstep, strangers: list[str], made: Counter[tuple[str, str]]) -> None:
        self.random = random.Random(seed)
        self.seldom = random.Random(seed)  # of its own: what is beside the jobs shifts no other act
        self.lockstep = lockstep
        self.lifecycle = lockstep.lifecycle
        self.strangers = strangers
        self.trace: deque[str] = deque(maxlen=12)
        self.latest_us = lockstep.now
        self.made = made  # (action, state) → how often, here and in earlier histories
        self.options = {
            action: sorted({g.names[0] for move in moves for g in move.when if g.kind == "option"})
            for action, moves in self.lifecycle.actions.items()
        }

    def step(self) -> None:
        self.let_time_pass()
        acts: dict[Callable[[], None], int] = {
            self.enqueue: 12 if len(self.lockstep.jobs) < MOST_JOBS else 1,
            self.claim: 20,
            self.finish: 34,
            self.act: 14,
            self.sweep: 14,
            self.renew: 5,
            self.pause_or_resume: 3,
            self.read: 4,
        }
        [act] = self.random.choices(list(acts), list(acts.values()))
        act()
        if self.seldom.random() < 0.02:
            self.schedule()

    def note(self, what: str) -> None:
        self.trace.append(f"{self.lockstep.now}: {what}")

    def let_time_pass(self) -> None:
        chance = self.random
        seconds = chance.choices(
            [
                0.0,
                chance.random(),
                chance.uniform(1, 90),
                chance.uniform(60, 3_600),
                -chance.uniform(0, 7_200),
                chance.uniform(0.2, 1.5) * DAY_S,
                chance.choice([8, 91, 366]) * DAY_S,
            ],
            [30, 30, 30, 6, 4, 0.8, 0.3],
        )[0]
        self.set_clock(self.lockstep.now + round(seconds * 1_000_000))

    def set_clock(self, time_us: int) -> None:
        self.latest_us = max(self.latest_us, time_us)
        earliest = self.latest_us - FARTHEST_BACK_S * 1_000_000
        was, self.lockstep.clock.time_us = self.lockstep.now, max(time_us, earliest)
        if self.lockstep.now < was:
            self.lockstep.restart_producer()

    def wait_for_the_moment(self, move: Move) -> None:
        """Go to the microsecond at which a job's time for the move has come, or just before."""
        now, lifecycle = self.lockstep.now, self.lifecycle
        aged = move.guard("age_over")
        near = []
        for job in self.lockstep.jobs.values():
            moments = [job.lease_until, job.timer_at, job.run_at]
            if aged:
                stamp = getattr(job, lifecycle.stamp_column(aged.names[0]))
                moments.append(stamp and stamp + aged.number * 1_000_000)
            for at in moments:
                if at and job.state in move.sources and abs(at - now) < 2 * DAY_S * 1_000_000:
                    at_last = failing_guard(move, job, lifecycle, MoveContext(at, ""), None) is None
                    not_yet = failing_guard(move, job, lifecycle, MoveContext(at - 1, ""), None)
                    near += [at] if at_last and not_yet else []
        if near:
            self.set_clock(self.random.choice(near) - self.random.randint(0, 1))

    # What producers, workers, operators and the sweeper do

    def enqueue(self) -> None:
        chance, lockstep = self.random, self.lockstep
        news = []
        for _ in range(chance.choice([1, 1, 1, 2, 5])):
            fields: dict[str, Any] = {"tenant": chance.choice(TENANTS)}
            fields["payload"] = f'{{"n":{chance.randrange(1_000)}}}'
            if chance.random() < 0.5:
                fields["dedup_key"] = f"key-{chance.randrange(25)}"
                fields["once"] = self.lifecycle.initial.holds_key and chance.random() < 0.2
            if chance.random() < 0.2:
                fields["priority"] = chance.choice([-1, 1, 2])
            if self.lifecycle.enqueue_after_move and lockstep.jobs and chance.random() < 0.5:
                several = chance.sample(list(lockstep.jobs), min(len(lockstep.jobs), 3))
                fields["after"] = tuple(several[: chance.randint(1, 3)])
            elif chance.random() < 0.3:
                fields["run_at"] = lockstep.now + chance.randrange(-(10**8), 10**9)
            if chance.random() < 0.3:
                fields["max_attempts"] = chance.randint(1, 4)
            if chance.random() < 0.2:
                fields["note"] = '{"who":"producer"}'
            if chance.random() < 0.8:
                fields["stamps"] = self.stamps(self.lifecycle.enqueue_move)
            news.append(lockstep.new_job(**fields))
        self.note(f"enqueue {len(news)}")
        lockstep.enqueue(news, actor=chance.choice(["producer", "importer"]))

    def stamps(self, move: Move) -> dict[str, int]:
        now, chance = self.lockstep.now, self.random
        return {name: now - chance.randrange(95 * DAY_S) * 1_000_000 for name in move.stamp_input}

    def claim(self) -> None:
        chance = self.random
        worker, limit = chance.choice(WORKERS), chance.choice([1, 1, 2, 3, 4, 5, 6, 20])
        tenants = None
        if chance.random() < 0.4:
            tenants = chance.sample((*TENANTS, "nowhere"), chance.randint(1, 3))
        lease_s = chance.choice([0.001, 60, 900, 3_600])
        if chance.random() < 0.2:
            self.wait_for_the_moment(chance.choice(self.lifecycle.claims))
        self.note(f"claim {worker} limit={limit} tenants={tenants} lease={lease_s}")
        self.lockstep.claim(worker, limit=limit, lease_s=lease_s, tenants=tenants)

    def finish(self) -> None:
        """A worker's action, mostly on jobs that are held, and of those the one farthest on."""
        chance, owned = self.random, self.lockstep.owned()
        actions = self.open_actions("worker")
        if not owned or chance.random() < 0.1:
            self.apply(chance.choice(actions), "worker", self.some_jobs())
            return
        here = Counter(job.state for job in owned)
        [held] = chance.choices(owned, [self.rarity(job.state) / here[job.state] for job in owned])
        beside = [job for job in owned if job.worker == held.worker and job.id != held.id]
        jobs = [held, *chance.sample(beside, min(len(beside), chance.choice([0, 0, 1, 4])))]
        fitting = [action for action in actions if self.leaves(action, held.state)] or actions
        self.apply(self.rarest(fitting, [held.state] * len(fitting)), "worker", jobs)

    def act(self) -> None:
        """An action of an operator or a producer."""
        chance = self.random
        role: Role = chance.choice(["operator", "operator", "producer"])
        jobs = list(self.lockstep.jobs.values())
        pairs = [(action, job) for action in self.open_actions(role) for job in jobs if self.leaves(action, job.state)]
        if pairs:
            action = self.rarest([action for action, _ in pairs], [job.state for _, job in pairs])
            fitting = [job for one, job in pairs if one == action]
            chosen = chance.sample(fitting, min(len(fitting), chance.choice([1, 2, 4])))
            self.apply(action, role, chosen + self.some_jobs()[:1])

    def rarest(self, actions: list[str], states: list[str]) -> str:
        """One of the actions; those that were seldom made from that state are the likelier."""
        weights = [
            (4 if self.goes_on(action) else 1) / (1 + self.made[action, state])
            for action, state in zip(actions, states, strict=True)
        ]
        return self.random.choices(actions, weights)[0]

    def goes_on(self, action: str) -> bool:
        """A step on the way, the claim in hand."""
        return any(move.claim == "keep" for move in self.lifecycle.actions[action])

    def rarity(self, state: str) -> float:
        return 1 / (1 + sum(n for (_, source), n in self.made.items() if source == state))

    def open_actions(self, role: Role) -> list[str]:
        creates = self.lifecycle.enqueue_move.action
        claims = {move.action for move in self.lifecycle.claims}
        return [action for action in self.lifecycle.actions_of(role) if action not in {creates, *claims}]

    def leaves(self, action: str, state: str) -> bool:
        return any(state in move.sources for move in self.lifecycle.actions[action])

    def replaces(self, action: str) -> bool:
        return any(move.payload == "replace" for move in self.lifecycle.actions[action])

    def priority(self, action: str) -> int | None:
        return self.random.choice(PRIORITIES) if self.lifecycle.sets_priority(action) else None

    def some_jobs(self) -> list[Job]:
        jobs = list(self.lockstep.jobs.values())
        return self.random.sample(jobs, min(len(jobs), self.random.choice([1, 1, 2, 4])))

    def apply(self, action: str, role: Role, jobs: list[Job]) -> None:
        chance, lockstep = self.random, self.lockstep
        changes = [self.change(action, job) for job in jobs]
        if chance.random() < 0.08:
            stranger = chance.choice([UNKNOWN_ID, *self.strangers])
            payload = "{}" if self.replaces(action) else None
            changes.append(Change(stranger, payload=payload, priority=self.priority(action)))
        if changes and chance.random() < 0.05:
            changes.append(chance.choice(changes))
        options = frozenset(name for name in self.options[action] if chance.random() < 0.5)
        tenants = None
        if chance.random() < 0.15:
            tenants = chance.sample(TENANTS, chance.randint(1, 3))
        commit = chance.random() < 0.95
        named = ", ".join(f"{change.id[-5:]} with {change.token}" for change in changes)
        self.note(f"{role} {action} of {named}; {set(options)}, {tenants}, commit={commit}")
        outcomes = lockstep.apply(
            action,
            changes,
            role=role,
            actor=chance.choice(WORKERS) if role == "worker" else role,
            options=options,
            tenants=tenants,
            commit=commit,
        )
        for job, outcome in zip(jobs, outcomes, strict=False):
            self.made[action, job.state] += outcome.result == "moved"

    def change(self, action: str, job: Job) -> Change:
        chance = self.random
        codes = [code.name for code in self.lifecycle.errors.codes]
        moves = self.lifecycle.actions[action]
        stamping = next((move for move in moves if move.stamp_input), None)
        return Change(
            job.id,
            self.token(job),
            error_code=chance.choice([*codes, *codes, "Surprise", None]),
            error_category=chance.choice([*(one.value for one in Category), None]),
            error_message=chance.choice(["it said 100% no", "naïve ’quote’", None]),
            result=chance.choice(['{"ok":true}', "[1,2]", None]),
            run_at=chance.choice([None, self.lockstep.now + chance.randrange(10**9)]),
            payload=f'{{"again":{chance.randrange(100)}}}' if self.replaces(action) else None,
            max_attempts=chance.choice([None, None, 1, 3, 8]),
            priority=self.priority(action),
            note=chance.choice([None, '{"why":"so"}']),
            stamps=self.stamps(stamping) if stamping and chance.random() < 0.7 else {},
        )

    def token(self, job: Job) -> int | None:
        """Mostly right; now and then none, an earlier one or one that never was."""
        likely = job.claim_seq if job.phase == OWNED else None
        wrong = [None, job.claim_seq, self.random.randint(0, job.seq + 1)]
        return likely if self.random.random() < 0.8 else self.random.choice(wrong)

    def sweep(self) -> None:
        """Any scheduled move; a limited one only where the order of picking is promised."""
        if self.lifecycle.waiting_states and self.random.random() < 0.4:
            self.note("settle")
            self.lockstep.settle()
            return
        chance, lockstep = self.random, self.lockstep
        settled = [move for move in self.lifecycle.scheduled_moves if move.stage != "settle"]
        move = chance.choice(settled)
        if chance.random() < 0.4:
            self.wait_for_the_moment(move)
        arguments: dict[str, Any] = {}
        if chance.random() < 0.15:
            arguments["min_age_us"] = chance.randrange(10**8)
        if move.stage == "cap" and chance.random() < 0.2:
            arguments["max_attempts"] = chance.randint(1, 3)
        due = lockstep.reference.sweep_candidates(move, now=lockstep.now, **arguments)
        if "max_attempts" not in arguments and lockstep.reference.same_order_everywhere(move, due):
            arguments["limit"] = chance.choice([1, 2, 1_000])
        self.note(f"sweep {move.name} from {move.sources} {arguments}")
        lockstep.sweep(move, **arguments)

    def renew(self) -> None:
        owned = self.lockstep.owned()
        jobs = self.random.sample(owned, min(len(owned), 5)) or self.some_jobs()
        claims = {job.id: self.token(job) or 0 for job in jobs}
        lease_s = self.random.choice([0.001, 60, 3 * DAY_S])
        self.note(f"renew {len(claims)} for {lease_s} s")
        self.lockstep.renew(list(claims.items()), lease_s=lease_s)

    def pause_or_resume(self) -> None:
        tenant = self.random.choice(["", *TENANTS])
        if tenant in self.lockstep.reference.paused or self.random.random() < 0.5:
            self.note(f"resume {tenant!r}")
            self.lockstep.resume(tenant)
        else:
            self.note(f"pause {tenant!r}")
            self.lockstep.pause(tenant)

    def schedule(self) -> None:
        """Some schedules are declared, ticked or changed, and some are gone."""
        names = self.seldom.sample(SCHEDULES, self.seldom.randint(0, len(SCHEDULES)))
        cut = self.seldom.randint(0, len(names))
        self.note(f"schedules {names[:cut]}, without {names[cut:]}")
        made = [self.seldom.choice(('{"cron": "* * * * *"}', "{}")) for _ in names]
        rows = [ScheduleRow(*one, self.lockstep.now) for one in zip(names, made, strict=True)]
        self.lockstep.write_schedules(rows[:cut], names[cut:])

    def read(self) -> None:
        chance, lockstep = self.random, self.lockstep
        if chance.random() < 0.3:
            self.note("stats")
            lockstep.compare_counts()
            return
        some = chance.choice(self.some_jobs() or [None])
        names = [state.name for state in self.lifecycle.states]
        filters: dict[str, Any] = {
            "states": tuple(chance.sample(names, 2)),
            "tenants": tuple(chance.sample(TENANTS, chance.randint(0, 2))),
            "codes": ("Surprise", "MAX_ATTEMPTS"),
            "categories": ("TRANSIENT", "PERMANENT"),
            "created_from": some.created_at if some else 0,
            "created_before": some.moved_at if some else 0,
            "moved_before": lockstep.now - 60_000_000,
            "dedup_key": f"key-{chance.randrange(25)}",
            "text": chance.choice(["100% NO", "_", "QUOTE’"]),
            "contains": '":',
            "unclaimed": True,
        }
        chosen = chance.sample(sorted(filters), chance.choice([0, 1, 1, 2]))
        where = Filter(**{name: filters[name] for name in chosen})
        self.note(f"list {where}")
        lockstep.compare_page(where, limit=chance.choice([1, 3, 50]), cursor=some.id if some else None)


def check_promises(lockstep: Lockstep, ended: dict[str, str]) -> None:
    """Budgets, ends, slots, keys and single claims; ``ended`` is what was terminal before."""
    lifecycle, jobs = lockstep.lifecycle, lockstep.jobs.values()
    for job in jobs:
        state = lifecycle.state[job.state]
        assert 0 <= job.attempt_count - job.attempt_base <= job.max_attempts
        assert job.return_count <= lifecycle.max_returns
        assert (job.phase == OWNED) == (job.worker is not None)
        assert state.working or job.phase != OWNED
        assert ended.get(job.id, job.state) == job.state, "it left a terminal state"
        assert lockstep.reference.successes[job.id] <= 1
        if state.terminal:
            ended[job.id] = job.state
    slots = Counter(job.state for job in jobs if lifecycle.state[job.state].capacity == 1)
    assert max(slots.values(), default=1) == 1, "two jobs are in one exclusive state"
    keys = Counter(
        (job.tenant, job.dedup_key)
        for job in jobs
        if (job.once or lifecycle.state[job.state].holds_key) and job.dedup_key
    )
    assert max(keys.values(), default=1) == 1, "two jobs hold one key"
    for events in lockstep.reference.history.values():
        owned = False
        for event in events:
            assert not (owned and event.claim == 1), "claimed while it was claimed"
            owned = event.claim == 1 or (owned and event.claim == -1)


def run(
    name: str, seed: int, stores: dict[str, Store], made: Counter[tuple[str, str]], share: float = 1.0
) -> set[Edge]:
    """Run a history, or a share of its steps, and return the declared moves it made."""
    lifecycle = ALL[name]()
    neighbour = Lockstep(f"{name}-{seed}-beside", lifecycle, stores, seed + 1_000)
    lockstep = Lockstep(f"{name}-{seed}", lifecycle, stores, seed)
    neighbour.enqueue([neighbour.new_job(tenant=tenant) for tenant in TENANTS])
    chance = Chance(seed, lockstep, list(neighbour.jobs), made)
    ended: dict[str, str] = {}
    try:
        for number in range(1, round(share * STEPS.get(name, FEWER_STEPS)) + 1):
            chance.step()
            if number % COMPARE_EVERY == 0:
                lockstep.compare_rows()
                lockstep.compare_counts()
                check_promises(lockstep, ended)
        lockstep.compare_all()
        neighbour.compare_all()
    except BaseException as problem:
        problem.add_note(f"lifecycle {name}, seed {seed}; the last steps:")
        for line in chance.trace:
            problem.add_note(line)
        raise
    return {edge[1:] for edge in lockstep.reference.counts}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in IN_OTHERS)) for name in ALL])
def test_a_random_history_is_the_same_in_every_store_and_the_reference(
    name: str, stores: dict[str, Store], request: pytest.FixtureRequest
):
    actions: Counter[tuple[str, str]] = Counter()
    made: set[Edge] = set()
    in_process = {"sqlite": stores["sqlite"]}
    long = request.config.getoption("--long")
    for seed in SEEDS if long else SEEDS[::2]:
        if long:
            made |= run(name, seed, stores, actions)
        elif seed == 0:
            made |= run(name, seed, stores, actions, SHARE_ON_SERVERS)
        else:
            made |= run(name, seed, in_process, actions, SHORT_SHARE.get(name, SMALLER_SHARE))
    declared = {(move.name, source, to) for move, source, to in declared_edges(ALL[name]())}
    assert made <= declared
    if len(SEEDS) >= 3:  # fewer, asked for by hand, need not come everywhere
        never = f"never made: {sorted(declared - made)}"
        assert len(made) >= (0.8 if long else 0.55) * len(declared), never
