"""Foreseeing a call: what it says of many jobs is what the call then does with them."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from kesin.lifecycle.declare import Move
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreError
from kesin.store.limits import MAX_BATCH
from kesin.store.records import Filter
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.every_word import cast, every_word
from tests.store.model.lifecycles import ferry_lifecycle
from tests.store.scene import MINUTE, OPERATOR, UNKNOWN_ID, error, sent_by
from tests.store.traffic import traffic

LIFECYCLES = (task_lifecycle, oci_lifecycle, pdf_lifecycle, optiplan_lifecycle)


class RolledBack(Exception):
    """Ends a transaction whose rows are wanted again."""


def foresee(scene, call, where=Filter(), role="operator", **how):  # noqa: B008  # frozen
    return scene.store.preview(scene.queue, call, where, role=role, now=scene.now, **how)


def done(scene, call, where, role, options):
    """What the call answers, of every job that the filter lists; nothing stays of it."""
    jobs = scene.store.jobs(scene.queue, where, limit=1_000).jobs
    told = Counter()
    with suppress(RolledBack), scene.store.transaction():
        changes = [Change(job.id, payload="{}") for job in jobs]
        outcomes = scene.apply(call, changes, role=role, options=options)
        for job, one in zip(jobs, outcomes, strict=True):
            reason = "" if one.result == "moved" else one.reason or one.result
            told[job.state, reason] += 1
        raise RolledBack
    return dict(told)


def some_filters(scene, chance):
    jobs = list(scene.all().values())
    states = tuple(chance.sample(list(scene.lifecycle.state), 2))
    some = chance.choice(jobs)
    yield Filter()
    yield Filter(states=states, tenants=("a", "b", "z"))
    yield Filter(created_before=some.created_at, moved_before=chance.choice(jobs).moved_at)
    yield Filter(codes=(some.error_code or "UNKNOWN",), text="BROKE")
    yield Filter(tenants=("a", "c"), dedup_key="k1")


def calls_of(scene):
    """Every call that needs no claim, with every choice of its options."""
    for role in ("operator", "producer"):
        for call in scene.lifecycle.actions_of(role):
            if call == scene.lifecycle.enqueue_move.action:
                continue
            known = sorted(scene.lifecycle.options_of(call))
            for ticks in product((False, True), repeat=len(known)):
                yield call, role, frozenset(o for o, on in zip(known, ticks, strict=True) if on)


@pytest.mark.parametrize("make", LIFECYCLES, ids=lambda make: make.__name__)
def test_what_is_foreseen_is_what_then_happens(open_queue, make):
    chance = random.Random(3)
    scene = open_queue(make())
    traffic(scene, chance, steps=80)
    reasons = set()
    for where in some_filters(scene, chance):
        for call, role, options in calls_of(scene):
            seen = foresee(scene, call, where, role, options=options)
            assert seen == done(scene, call, where, role, options), (call, where)
            reasons |= {reason for _, reason in seen}
    assert {"", "state"} < reasons


def test_every_guard_is_foreseen_as_it_judges(open_queue):
    scene = open_queue(every_word())
    cast(scene)
    for call, role, options in calls_of(scene):
        seen = foresee(scene, call, role=role, options=options)
        assert seen == done(scene, call, Filter(), role, options), call


def test_of_rivals_for_a_key_one_moves_unless_somebody_has_it(open_queue):
    ferry = open_queue(ferry_lifecycle())
    k = "key:slot:waiting"  # which is none
    for key, tenant in ((k, "a"), (k, "a"), (k, "a"), (k, "b"), (None, "a"), (None, "a")):
        ferry.apply("turn_back", [ferry.claim_new_job(key=key, tenant=tenant)], **error())
    seen = foresee(ferry, "board")
    assert seen == {("ashore", ""): 4, ("ashore", "duplicate"): 2}
    assert seen == done(ferry, "board", Filter(), "operator", ())
    ferry.create_job(key=k, tenant="a")
    assert foresee(ferry, "board") == {
        ("ashore", ""): 3,
        ("ashore", "duplicate"): 3,
        ("waiting", "already"): 1,
    }


def test_of_many_before_a_slot_one_enters_unless_somebody_is_in_it(open_queue):
    scene = open_queue(every_word())
    first, *_ = scene.create_jobs(3, stamps={"first_at": scene.now})
    seen = foresee(scene, "take_slot")
    assert seen == {("ready", ""): 1, ("ready", "busy"): 2}
    assert seen == done(scene, "take_slot", Filter(), "operator", ())
    scene.move("take_slot", first, **OPERATOR)
    assert foresee(scene, "take_slot") == {("ready", "busy"): 2, ("alone", "already"): 1}


def test_a_slot_is_foreseen_whichever_alternative_takes_it(open_queue):
    rules = every_word()
    back = Move("back", ("failed",), "ready", by=("operator",), run_at="now", action="go")
    alone = Move("go_alone", ("ready",), "alone", by=("operator",), action="go")
    scene = open_queue(replace(rules, moves=(*rules.moves, back, alone)))
    scene.create_jobs(3, stamps={"first_at": scene.now})
    seen = foresee(scene, "go")
    assert seen == {("ready", ""): 1, ("ready", "busy"): 2}
    assert seen == done(scene, "go", Filter(), "operator", ())


def test_named_jobs_are_foreseen_as_far_as_they_match(oci):
    failed, other, waiting = oci.create_jobs(3, stamps={"conversion_at": oci.now})
    for job in (failed, other):
        oci.move("MARK_FAILED", job, **OPERATOR)
    asked = (failed, failed, waiting, UNKNOWN_ID, "no id")
    assert foresee(oci, "MARK_FAILED", ids=asked) == {("FAILED", "already"): 1, ("QUEUED", ""): 1}
    only = Filter(states=("FAILED",))
    assert foresee(oci, "MARK_FAILED", only, ids=asked) == {("FAILED", "already"): 1}
    assert foresee(oci, "MARK_FAILED", ids=()) == {}
    with pytest.raises(StoreError, match="at most"):
        foresee(oci, "MARK_FAILED", ids=[failed] * (MAX_BATCH + 1))


def test_a_call_of_somebody_else_or_a_strange_option_is_refused(oci):
    with pytest.raises(StoreError, match="is no call a worker can make"):
        foresee(oci, "MARK_FAILED", role="worker")
    with pytest.raises(StoreError, match="has no option 'loud'"):
        foresee(oci, "MARK_FAILED", options=frozenset({"loud"}))


def test_foreseeing_changes_nothing(task):
    task.claim_new_jobs(1)
    task.create_jobs(3)
    task.clock.advance(MINUTE)
    before = task.snapshot(), task.store.move_counts("task")
    assert foresee(task, "cancel") == {("ready", ""): 3, ("running", "state"): 1}
    assert (task.snapshot(), task.store.move_counts("task")) == before


@pytest.mark.sql
def test_foreseeing_is_one_statement(task, statements):
    task.create_jobs(3)
    with task.store.transaction():  # where SQLite reads through the connection that is watched
        assert sent_by(statements, lambda: foresee(task, "cancel")) == 1
