"""Versions of rules: new ones are stored only where every job under the old ones fits them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kesin.engine.replay import verify
from kesin.lifecycle.codec import lifecycle_from_json, rules_fingerprint
from kesin.lifecycle.declare import Lifecycle, Move, State
from kesin.lifecycle.moves import cancel
from kesin.lifecycle.proof.rules import prove
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import After, flag_set, timer_over
from kesin.store import rules
from kesin.store.errors import StoreError
from kesin.store.redis.store import RedisStore
from kesin.store.rules import UpgradeRefused
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.checking import CHECKED, all_at_once, checking_lifecycle, refused, versions
from tests.store.scene import DAY, NOW, OPERATOR

MARKED = replace(task_lifecycle(), flags=("blue", "red"), stamps=("seen_at", "read_at"))


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


def test_opening_the_same_rules_again_stores_nothing_but_injected_times_once(store):
    for _ in range(2):
        store.open("q", task_lifecycle())
    moves = tuple(replace(move, doc="said otherwise") for move in task_lifecycle().moves)
    store.open("q", replace(task_lifecycle(), moves=moves))
    assert versions(store, "q") == [1]
    for _ in range(2):
        store.open("q", task_lifecycle(), virtual_time=True)
    store.open("q", task_lifecycle())
    assert [version.virtual_time for version in store.rules("q")] == [False, True]


# U1 to U4


# What is decided before the store is called is tested on one store.
before_the_store = pytest.mark.parametrize("store", ["sqlite-file"], indirect=True)


@before_the_store
def test_flags_and_stamps_keep_their_places(store):
    store.open("q", MARKED)
    changes: tuple[tuple[str, Any], ...] = (
        ("flags", ("red", "blue")),
        ("flags", ()),
        ("flags", ("green", "blue", "red")),
        ("stamps", ("read_at", "seen_at")),
        ("stamps", ("heard_at", "seen_at", "read_at")),
    )
    for kind, names in changes:
        (reason,) = refused(store, "q", replace(MARKED, **{kind: names}))
        assert reason.startswith(f"U1: the stored {kind} are {', '.join(getattr(MARKED, kind))}")
        assert reason.endswith("(0 jobs stored)")


def test_a_state_does_not_vanish_and_the_refusal_counts_its_jobs(open_queue):
    scene = open_queue(checking_lifecycle(), "q")
    for count in ("0 jobs", "1 job"):
        (reason,) = refused(scene.store, "q", task_lifecycle())
        assert reason.startswith(f"U2: the state checking is gone (it holds {count}):")
        assert "retiring=True" in reason
        scene.move("check", scene.create_job(), **OPERATOR)


def test_another_lifecycle_under_the_same_name_is_refused(open_queue):
    scene = open_queue(pdf_lifecycle(), "q")
    scene.create_job()
    reasons = refused(scene.store, "q", task_lifecycle())
    assert any("the state queued is gone (it holds 1 job):" in reason for reason in reasons)
    assert scene.claim()[0].state == "running", "it goes on under its rules"


def renamed_check(**marks: Any) -> Lifecycle:
    """With another move into checking, whose state is declared otherwise."""
    task = task_lifecycle()
    ways_out = () if marks.get("terminal") else (CHECKED,)
    moves = (*task.moves, *ways_out, cancel("ready", "checking", name="put_aside"))
    return replace(task, states=(*task.states, State("checking", **marks)), moves=moves)


@before_the_store
def test_a_kept_state_keeps_what_its_rows_hold(store):
    store.open("plain", checking_lifecycle())
    store.open("keyed", checking_lifecycle(holds_key=True))
    for queue, marks, why in (
        ("plain", {"terminal": True}, "jobs in checking are resting but would have to be finished"),
        ("plain", {"resting": True, "holds_key": True}, "checking now holds the key"),
        ("plain", {"resting": True, "exclusive": True}, "checking had no slots but would have slots per queue"),
        ("keyed", {"resting": True}, "checking no longer holds the key"),
    ):
        (reason,) = refused(store, queue, renamed_check(**marks))
        assert reason.startswith(f"U3: {why}")


def test_a_key_that_the_same_moves_would_let_go_is_refused_as_that(open_queue):
    scene = open_queue(checking_lifecycle(holds_key=True), "q")
    scene.move("check", scene.create_job(), **OPERATOR)
    (reason,) = refused(scene.store, "q", checking_lifecycle())
    said = "U3: checking no longer holds the key, but stored rows do not change (1 job stored)"
    assert reason == said


def test_a_move_keeps_its_effects(store):
    task = task_lifecycle()
    store.open("q", task)
    before = store.rules("q")
    changes: dict[str, dict[str, Any]] = {"requeue": {"retry": "count"}, "release": {"attempt": "keep"}}
    for name, change in changes.items():
        changed = (replace(move, **change) if move.name == name else move for move in task.moves)
        with pytest.raises(StoreError, match=f"the move {name} .* give the changed move a new name"):
            store.open("q", replace(task, moves=tuple(changed)))
    assert store.rules("q") == before


def parking(*, flagged: bool) -> Lifecycle:
    """A job waits to be brought back by the clock; ``flagged``: only one parked with the flag."""
    task = task_lifecycle()
    park = Move("park", ("ready",), "parked", by=("operator",), timer=After(60), flag=("late",) if flagged else ())
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
    grown = [replace(checking, flags=("seen",), stamps=("seen_at",), moves=(*checking.moves, see))]
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


# At once


def test_of_versions_declared_at_once_each_is_stored_once_and_the_second_has_to_fit_the_first(store):
    plain, newer = task_lifecycle(), checking_lifecycle()
    for number in range(2):
        same, apart = f"same{number}", f"apart{number}"
        for queue in (same, apart):
            store.open(queue, plain)
        assert all_at_once(*[partial(store.open, same, newer)] * 4) == [None] * 4
        calls = [partial(store.open, apart, replace(plain, flags=(flag,))) for flag in ("blue", "red")]
        refusals = [problem for problem in all_at_once(*calls) if problem]
        assert [type(problem) for problem in refusals] == [UpgradeRefused]
        assert "U1" in str(refusals[0])
        assert versions(store, same) == versions(store, apart) == [1, 2]


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
    assert reason.startswith("U2: the state checking is gone (it holds 1 job):")
    open_queue(checking_lifecycle(retiring=True), "q")
    assert versions(store, "q") == [0, 1]
    assert verify(store, "q"), "the move into the state is accounted for by version 0"
    open_queue(replace(checking_lifecycle(retiring=True), flags=("new",)), "q")
    assert versions(store, "q") == [0, 1, 2]
