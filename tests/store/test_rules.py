"""Versions of rules: new ones are stored only where every job under the old ones fits them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Barrier
from typing import Any

import psycopg
import pytest

from kesin.engine.queue import Queue
from kesin.engine.replay import verify
from kesin.engine.validation import BadInput
from kesin.foundation.clock import ManualClock
from kesin.lifecycle.codec import lifecycle_from_json, rules_fingerprint
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.moves import cancel
from kesin.lifecycle.proof.rules import prove
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import After, flag_set, timer_over
from kesin.store import rules
from kesin.store.contract import Store
from kesin.store.errors import GuardRefused, StoreError
from kesin.store.postgres.store import PostgresStore
from kesin.store.redis.store import RedisStore
from kesin.store.rules import UpgradeRefused
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.checking import CHECKED, checking_lifecycle
from tests.store.scene import DAY, NOW, OPERATOR, Scene

MARKED = replace(task_lifecycle(), flags=("blue", "red"), stamps=("seen_at", "read_at"))


def versions(store: Store, queue: str) -> list[int]:
    return [version.version for version in store.rules(queue)]


def refused(store: Store, queue: str, lifecycle: Lifecycle) -> list[str]:
    """Open a queue under rules that it must refuse; the reasons. Nothing is stored."""
    before = store.rules(queue)
    with pytest.raises(UpgradeRefused) as raised:
        store.open(queue, lifecycle)
    assert store.rules(queue) == before
    return [str(rule) for rule in raised.value.broken]


# What is stored


def test_every_version_is_stored_whole(store):
    older, newer = task_lifecycle(), checking_lifecycle()
    store.open("q", older)
    store.open("q", newer, virtual_time=True)
    first, second = store.rules("q")
    assert [lifecycle_from_json(version.definition) for version in (first, second)] == [
        replace(lifecycle, moves=tuple(replace(move, doc="") for move in lifecycle.moves))
        for lifecycle in (older, newer)
    ]
    assert (first.version, first.fingerprint) == (1, rules_fingerprint(older))
    assert (second.version, second.fingerprint) == (2, rules_fingerprint(newer))
    assert (first.virtual_time, second.virtual_time) == (False, True)
    assert store.rules("other") == []


def test_opening_the_same_rules_again_stores_nothing(store):
    for _ in range(2):
        store.open("q", task_lifecycle())
    moves = tuple(replace(move, doc="said otherwise") for move in task_lifecycle().moves)
    store.open("q", replace(task_lifecycle(), moves=moves))
    assert versions(store, "q") == [1]


def test_injected_times_are_a_version_of_their_own_once(store):
    store.open("q", task_lifecycle())
    for _ in range(2):
        store.open("q", task_lifecycle(), virtual_time=True)
    store.open("q", task_lifecycle())
    assert [version.virtual_time for version in store.rules("q")] == [False, True]


# U1 to U4


# What is decided before the store is called is tested on one store.
before_the_store = pytest.mark.parametrize("store", ["sqlite-file"], indirect=True)


@before_the_store
@pytest.mark.parametrize(
    "change",
    [
        {"flags": ("red", "blue")},
        {"flags": ()},
        {"flags": ("green", "blue", "red")},
        {"stamps": ("read_at", "seen_at")},
        {"stamps": ("heard_at", "seen_at", "read_at")},
    ],
)
def test_flags_and_stamps_keep_their_places(store, change):
    store.open("q", MARKED)
    (reason,) = refused(store, "q", replace(MARKED, **change))
    (kind,) = change
    assert reason.startswith(f"U1: the stored {kind} are {', '.join(getattr(MARKED, kind))}")
    assert reason.endswith("(0 jobs stored)")


@pytest.mark.parametrize(("jobs", "count"), [(0, "0 jobs"), (1, "1 job")])
def test_a_state_does_not_vanish_and_the_refusal_counts_its_jobs(open_queue, jobs, count):
    scene = open_queue(checking_lifecycle(), "q")
    for _ in range(jobs):
        scene.move("check", scene.create_job(), **OPERATOR)
    (reason,) = refused(scene.store, "q", task_lifecycle())
    assert reason.startswith(f"U2: the state checking is gone, which holds {count}:")
    assert "retiring=True" in reason


def test_another_lifecycle_under_the_same_name_is_refused(open_queue):
    scene = open_queue(pdf_lifecycle(), "q")
    scene.create_job()
    reasons = refused(scene.store, "q", task_lifecycle())
    assert any("the state queued is gone, which holds 1 job:" in reason for reason in reasons)
    assert scene.claim()[0].state == "running", "it goes on under its rules"


def renamed_check(**marks: Any) -> Lifecycle:
    """With another move into checking, whose state is declared otherwise."""
    task = task_lifecycle()
    ways_out = () if marks.get("terminal") else (CHECKED,)
    moves = (*task.moves, *ways_out, cancel("ready", "checking", name="put_aside"))
    return replace(task, states=(*task.states, State("checking", **marks)), moves=moves)


@before_the_store
@pytest.mark.parametrize(
    ("marks", "why"),
    [
        ({"terminal": True}, "jobs in checking are resting, and would have to be finished"),
        ({"resting": True, "holds_key": True}, "checking is now holds_key"),
        ({"resting": True, "exclusive": True}, "checking is now exclusive"),
    ],
)
def test_a_kept_state_keeps_what_its_rows_hold(store, marks, why):
    store.open("q", checking_lifecycle())
    (reason,) = refused(store, "q", renamed_check(**marks))
    assert reason.startswith(f"U3: {why}")


@before_the_store
def test_a_key_is_not_let_go_by_a_new_version(store):
    store.open("q", checking_lifecycle(holds_key=True))
    (reason,) = refused(store, "q", renamed_check(resting=True))
    assert reason.startswith("U3: checking is no longer holds_key")


def test_a_key_that_the_same_moves_would_let_go_is_refused_as_that(open_queue):
    scene = open_queue(checking_lifecycle(holds_key=True), "q")
    scene.move("check", scene.create_job(), **OPERATOR)
    (reason,) = refused(scene.store, "q", checking_lifecycle())
    said = "U3: checking is no longer holds_key: rows keep what they had (1 job stored)"
    assert reason == said


@pytest.mark.parametrize(
    ("name", "change"), [("requeue", {"retry": "count"}), ("release", {"attempt": "keep"})]
)
def test_a_move_keeps_its_effects(store, name, change):
    task = task_lifecycle()
    store.open("q", task)
    before = store.rules("q")
    changed = (replace(move, **change) if move.name == name else move for move in task.moves)
    with pytest.raises(StoreError, match=f"the move {name} .* give the changed move a new name"):
        store.open("q", replace(task, moves=tuple(changed)))
    assert store.rules("q") == before


def parking(*, flagged: bool) -> Lifecycle:
    """A job waits to be brought back by the clock; ``flagged``: only one parked with the flag."""
    task = task_lifecycle()
    park = Move(
        "park",
        ("ready",),
        "parked",
        by=("operator",),
        timer=After(60),
        flag=("late",) if flagged else (),
    )
    fetch = Move(
        "fetch",
        ("parked",),
        "ready",
        by=("clock",),
        when=(timer_over, flag_set("late")) if flagged else (timer_over,),
        timer="clear",
        run_at="now",
        stage="timeout",
    )
    states = (*task.states, State("parked", holds_key=True))
    return replace(task, flags=("late",), states=states, moves=(*task.moves, park, fetch))


def test_rules_that_would_strand_jobs_of_the_old_ones_are_refused_with_the_path(open_queue):
    older, newer = parking(flagged=False), parking(flagged=True)
    assert prove(older)
    assert prove(newer), "it is only the jobs of the old rules that would not come back"
    scene = open_queue(older, "q")
    scene.create_jobs(2)
    (reason, *_) = refused(scene.store, "q", newer)
    assert reason.startswith("U4/")
    assert "(2 jobs stored)" in reason
    assert "park → " in reason
    assert "parked" in reason


# What is accepted


def test_rules_grow_and_jobs_of_the_old_ones_go_on(open_queue):
    scene = open_queue(task_lifecycle(), "q")
    running, ready = scene.claim_new_job(max_attempts=5), scene.create_job()
    see = Move("see", ("ready",), "ready", by=("operator",), flag=("seen",), stamp=("seen_at",))
    checking = checking_lifecycle()
    grown = [
        replace(checking, flags=("seen",), stamps=("seen_at",), moves=(*checking.moves, see)),
    ]
    grown.append(replace(grown[0], flags=("seen", "heard")))
    grown.append(grown[1].with_limits(max_attempts=2))
    for lifecycle in grown:
        scene = open_queue(lifecycle, "q")
    assert versions(scene.store, "q") == [1, 2, 3, 4]
    assert scene.move("complete", running).state == "done"
    assert scene.move("see", ready, **OPERATOR).stamp_1 == NOW
    assert scene.move("check", ready, **OPERATOR).state == "checking"


def test_a_known_older_version_and_another_lifecycle_open_and_are_logged(open_queue, monkeypatch):
    logged: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(rules.log, "warning", lambda name, **what: logged.append((name, what)))
    older, newer = task_lifecycle(), checking_lifecycle()
    for lifecycle in (older, older, newer):
        scene = open_queue(lifecycle, "q")
    another = ("another_lifecycle_opened", {"queue": "q", "before": "task", "lifecycle": "task"})
    assert logged == [another]
    job = scene.create_job()
    restarted = open_queue(older, "q")
    older_opened = ("older_rules_opened", {"queue": "q", "version": 1, "newest": 2})
    assert logged == [another, older_opened, another]
    assert [claimed.id for claimed in restarted.claim()] == [job]
    open_queue(newer, "q")
    assert logged == [another, older_opened, another, another]
    assert versions(restarted.store, "q") == [1, 2]


@pytest.mark.sql
def test_an_older_version_that_opens_does_not_stop_what_the_newest_one_prunes(store):
    """The guard takes the age from the newest version; an older one may only lower it."""

    def days() -> set[int]:
        ages = (effects.min_age_us for edge, effects in store.declared("q").items() if not edge[-1])
        return {age // DAY for age in ages}

    monthly, weekly = task_lifecycle(), task_lifecycle(keep_days=7)
    seen = []
    for lifecycle in (monthly, weekly, monthly, replace(monthly, flags=("new",)), weekly):
        store.open("q", lifecycle)
        seen.append(days())
    assert seen == [{30}, {7}, {7}, {30}, {7}]


# Retiring


def with_rules_of(store: Any, queue: str) -> Callable[[], None]:
    """Keeps what a process knows of the queue now; the call makes this process that one again."""
    known = store._queues[queue]

    def restore() -> None:
        store._queues[queue] = known

    return restore


def enter(scene: Scene, job: str) -> bool:
    """Whether the job may enter the state; SQL refuses the statement, Redis the move."""
    try:
        return scene.apply_one("check", job, **OPERATOR).result == "moved"
    except GuardRefused:
        return False


def test_a_state_leaves_in_three_steps(open_queue):
    old = open_queue(checking_lifecycle(), "q")
    store = old.store
    inside, outside = old.create_jobs(2)
    old.move("check", inside, **OPERATOR)
    as_old_process = with_rules_of(store, "q")

    new = open_queue(checking_lifecycle(retiring=True), "q")
    with pytest.raises(StoreError, match="the state checking of q holds 1 job:"):
        store.retire("q", "checking", now=NOW)
    assert store.retired_states("q") == frozenset()
    new.move("checked", inside, **OPERATOR)
    as_old_process()
    assert enter(old, inside), "it is not retired yet"
    new = open_queue(checking_lifecycle(retiring=True), "q")
    new.move("checked", inside, **OPERATOR)

    for _ in range(2):
        store.retire("q", "checking", now=NOW)
    assert store.retired_states("q") == {"checking"}
    as_old_process()
    before = old.snapshot()
    assert not enter(old, outside)
    assert not enter(old, inside)
    assert old.snapshot() == before

    last = open_queue(task_lifecycle(), "q")
    assert versions(store, "q") == [1, 2, 3]
    assert len(last.claim(2)) == 2
    reasons = refused(store, "q", replace(checking_lifecycle(), flags=("again",)))
    assert reasons == ["U2: the state checking was retired: give the new one another name"]
    assert verify(store, "q"), "the moves of then are accounted for"


def test_a_claim_by_an_old_process_does_not_enter_a_retired_state_either(open_queue):
    """Not only operators' moves: a worker's claim into it is refused as well."""
    task = task_lifecycle()
    claims = tuple(replace(move, to="checking") if move.claims else move for move in task.moves)
    state = State("checking", holds_key=True)
    ways_out = tuple(
        replace(move, sources=("running", "checking")) if "running" in move.sources else move
        for move in claims
    )
    start = Move("start", ("checking",), "running", by=("worker",))
    older = replace(task, states=(*task.states, state), moves=(*ways_out, start))
    retiring = replace(state, retiring=True)
    moves = tuple(
        replace(move, sources=("running", "checking")) if "running" in move.sources else move
        for move in (*task.moves, start)
    )
    newer = replace(task, states=(*task.states, retiring), moves=moves)
    old = open_queue(older, "q")
    job = old.create_job()
    as_old_process = with_rules_of(old.store, "q")
    open_queue(newer, "q")
    old.store.retire("q", "checking", now=NOW)
    as_old_process()
    with suppress(GuardRefused):
        assert old.claim() == []
    assert old.state(job) == "ready"


def test_a_queue_retires_only_what_it_declares_as_retiring(store):
    clock = ManualClock(NOW)
    queue = Queue("q", checking_lifecycle(), store, clock=clock)
    for state in ("checking", "failed", "nowhere"):
        with pytest.raises(BadInput, match="not declared with retiring=True"):
            queue.retire(state)
    Queue("q", checking_lifecycle(retiring=True), store, clock=clock).retire("checking")
    assert store.retired_states("q") == {"checking"}


# At once


def all_at_once(*calls: Callable[[], object]) -> list[BaseException | None]:
    """Make the calls at once, each in a thread; what each raised."""
    barrier = Barrier(len(calls))

    def make(call: Callable[[], object]) -> None:
        barrier.wait()
        call()

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(make, call) for call in calls]
        return [future.exception() for future in futures]


def test_one_version_declared_by_many_at_once_is_one_version(store):
    newer = checking_lifecycle()
    for number in range(3):
        queue = f"q{number}"
        store.open(queue, task_lifecycle())
        raised = all_at_once(*[lambda queue=queue: store.open(queue, newer)] * 4)
        assert raised == [None] * 4
        assert versions(store, queue) == [1, 2]


def test_of_two_versions_declared_at_once_the_second_has_to_fit_the_first(store):
    plain = task_lifecycle()
    for number in range(3):
        queue = f"q{number}"
        store.open(queue, plain)
        calls = [
            lambda queue=queue, flag=flag: store.open(queue, replace(plain, flags=(flag,)))
            for flag in ("blue", "red")
        ]
        refusals = [problem for problem in all_at_once(*calls) if problem]
        assert [type(problem) for problem in refusals] == [UpgradeRefused]
        assert "U1" in str(refusals[0])
        assert versions(store, queue) == [1, 2]


def test_a_state_is_retired_or_entered_at_once_and_never_both(store):
    for number in range(4):
        scene = Scene(store, f"q{number}", checking_lifecycle())
        job = scene.create_job()
        as_old_process = with_rules_of(store, scene.queue)
        store.open(scene.queue, checking_lifecycle(retiring=True))
        as_old_process()
        retire = partial(store.retire, scene.queue, "checking", now=NOW)
        all_at_once(partial(enter, scene, job), retire)
        retired = store.retired_states(scene.queue) == {"checking"}
        assert scene.state(job) == ("ready" if retired else "checking")


def until_somebody_waits(url: str, store: PostgresStore) -> None:
    """Look until a session waits for a lock on the table of jobs."""
    waiting = (
        "SELECT count(*) FROM pg_locks WHERE NOT granted"
        f" AND relation = '{store.dialect.table('job')}'::regclass"
    )
    with psycopg.connect(url, autocommit=True) as looker:
        while looker.execute(waiting).fetchall() == [(0,)]:
            pass


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_postgres_retires_after_a_move_that_is_under_way(open_queue, postgres_url):
    scene = open_queue(checking_lifecycle(), "q")
    job = scene.create_job()
    with ThreadPoolExecutor(1) as pool:
        with scene.store.transaction():
            assert enter(scene, job)
            retired: Future[None] = pool.submit(scene.store.retire, "q", "checking", now=NOW)
            until_somebody_waits(postgres_url, scene.store)
        with pytest.raises(StoreError, match="holds 1 job:"):
            retired.result()
    assert scene.store.retired_states("q") == frozenset()


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
def test_postgres_moves_nothing_into_a_state_that_is_being_retired(open_queue, postgres_url):
    scene = open_queue(checking_lifecycle(), "q")
    job = scene.create_job()
    with ThreadPoolExecutor(1) as pool:
        with scene.store.transaction():
            scene.store.retire("q", "checking", now=NOW)
            entered: Future[bool] = pool.submit(enter, scene, job)
            until_somebody_waits(postgres_url, scene.store)
        assert entered.result() is False
    assert scene.state(job) == "ready"


# Before there were versions


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_redis_takes_what_was_declared_before_versions_for_version_0(open_queue):
    scene = open_queue(checking_lifecycle(), "q")
    store = scene.store
    assert isinstance(store, RedisStore)
    job = scene.create_job()
    scene.move("check", job, **OPERATOR)
    store.client.delete("q:rules")
    assert versions(store, "q") == [0]
    (reason,) = refused(store, "q", task_lifecycle())
    assert reason.startswith("U2: the state checking is gone, which holds 1 job:")
    open_queue(checking_lifecycle(retiring=True), "q")
    assert versions(store, "q") == [0, 1]
    assert verify(store, "q"), "the move into the state is accounted for by version 0"
    open_queue(replace(checking_lifecycle(retiring=True), flags=("new",)), "q")
    assert versions(store, "q") == [0, 1, 2]
