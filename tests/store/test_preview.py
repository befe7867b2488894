"""Previews: the counts of a preview are the outcomes of the action."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from kesin.lifecycle.declare import Move
from kesin.lifecycle.failures import failure_states
from kesin.lifecycle.model import Change
from kesin.lifecycle.task import task_lifecycle
from kesin.store.errors import StoreError
from kesin.store.limits import MAX_BATCH
from kesin.store.records import Filter
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.every_word import EFFECTS, cast, every_word
from tests.store.model.lifecycles import ferry_lifecycle
from tests.store.scene import OPERATOR, UNKNOWN_ID, error, results, rolled_back, sent_by
from tests.store.traffic import traffic

LIFECYCLES = (
    oci_lifecycle,
    optiplan_lifecycle,
    pytest.param(task_lifecycle, marks=pytest.mark.long),
    pytest.param(pdf_lifecycle, marks=pytest.mark.long),
)
FILTERS = 7


def preview(scene, action, where=Filter(), role="operator", **how):  # noqa: B008  # frozen
    return scene.store.preview(scene.queue, action, where, role=role, now=scene.now, **how)


def apply_and_count(scene, action, where=Filter(), role="operator", options=()):  # noqa: B008
    """Count the outcomes of the action on every job of the filter, and roll back."""
    jobs = scene.store.jobs(scene.queue, where, limit=1_000).jobs
    with rolled_back(scene.store):
        changes = [Change(job.id, payload="{}") for job in jobs]
        outcomes = scene.apply(action, changes, role=role, options=options)
    answers = ["" if reason == "moved" else reason for reason in results(outcomes)]
    return Counter((job.state, answer) for job, answer in zip(jobs, answers, strict=True))


def some_filters(scene, chance):
    jobs = list(scene.all().values())
    states = tuple(chance.sample(list(scene.lifecycle.state), 2))
    some = chance.choice(jobs)
    yield Filter()
    yield Filter(states=states, tenants=("a", "b", "z"))
    yield Filter(created_before=some.created_at, moved_before=chance.choice(jobs).moved_at)
    yield Filter(codes=(some.error_code or "UNKNOWN",), text="BROKE")
    yield Filter(tenants=("a", "c"), dedup_key="k1")
    codes = tuple({job.error_code or "UNKNOWN" for job in jobs})
    yield Filter(states=failure_states(scene.lifecycle), codes=codes)
    yield Filter(states=states, tenants=("a", "b"), codes=codes[:1], categories=("VALIDATION",))


def actions_of(scene):
    """Every action that needs no claim, with every choice of its options."""
    for role in ("operator", "producer"):
        for action in scene.lifecycle.actions_of(role):
            if action == scene.lifecycle.enqueue_move.action:
                continue
            known = sorted(scene.lifecycle.options_of(action))
            for ticks in product((False, True), repeat=len(known)):
                yield action, role, frozenset(o for o, on in zip(known, ticks, strict=True) if on)


@pytest.mark.parametrize("make", LIFECYCLES, ids=lambda make: make.__name__)
def test_a_preview_counts_what_the_action_then_does(open_queue, make, request):
    """Every action on all jobs, and of each other filter a share of them; with --long, all."""
    long = request.config.getoption("--long")
    chance = random.Random(3)
    scene = open_queue(make())
    traffic(scene, chance, steps=60)
    reasons = set()
    for place, where in enumerate(some_filters(scene, chance)):
        for number, (action, role, options) in enumerate(actions_of(scene)):
            if where == Filter() or long or number % FILTERS == place:
                counts = preview(scene, action, where, role, options=options)
                outcomes = apply_and_count(scene, action, where, role, options)
                assert counts == outcomes, (action, where)
                reasons |= {reason for _, reason in counts}
    assert {"", "state"} < reasons


def test_a_preview_of_failed_jobs_by_their_codes(open_queue):
    """Where state and code decide, no job is read: these are counts of an index."""
    scene = open_queue(oci_lifecycle())
    failed = (("BROKEN", "a"), ("BROKEN", "b"), ("CONSENT_DENIED", "a"), ("OTHER", "a"))
    for code, tenant in failed:
        job_id = scene.create_job(tenant=tenant, stamps={"conversion_at": scene.now})
        scene.apply("MARK_FAILED", [job_id], **OPERATOR, **error(code, "VALIDATION"))
    for codes in ((), ("BROKEN",), ("BROKEN", "CONSENT_DENIED"), ("UNKNOWN",)):
        for tenants in (None, ("a",)):
            where = Filter(states=("FAILED",), tenants=tenants, codes=codes)
            assert len(scene.store.jobs(scene.queue, where).jobs) == sum(
                (not codes or code in codes) and tenant in (tenants or "ab") for code, tenant in failed
            )
            for action in ("RETRY_SELECTED", "MARK_FAILED", "correct"):
                assert preview(scene, action, where) == apply_and_count(scene, action, where), (codes, tenants)


def test_a_preview_counts_failed_jobs_without_a_code_too(open_queue):
    """The index of errors lacks them: they are the rest of the counters."""
    task = task_lifecycle()
    stamp = ("finished_at",)
    shelve = Move("shelve", ("ready",), "failed", by=("operator",), stamp=stamp)
    scene = open_queue(replace(task, moves=(*task.moves, shelve)))
    for action in ("shelve", "shelve", "cancel"):
        scene.apply(action, [scene.create_job()], **OPERATOR)
    where = Filter(states=("failed",))
    counts = preview(scene, "dismiss", where)
    assert counts == apply_and_count(scene, "dismiss", where)
    assert sorted(counts.values()) == [1, 2]


def test_a_preview_evaluates_every_guard_as_the_action_does(open_queue):
    scene = open_queue(every_word())
    cast(scene)
    unguarded = {move.name for move in EFFECTS if not move.when}
    for action, role, options in actions_of(scene):
        if action in unguarded - {"drop_claim"}:  # which stands for all moves without a guard
            continue
        counts = preview(scene, action, role=role, options=options)
        assert counts == apply_and_count(scene, action, role=role, options=options), action


def test_of_rivals_for_a_key_one_moves_unless_another_job_holds_it(open_queue):
    ferry = open_queue(ferry_lifecycle())
    k = "key:slot:waiting"  # which is none
    for key, tenant in ((k, "a"), (k, "a"), (k, "a"), (k, "b"), (None, "a"), (None, "a")):
        ferry.apply("turn_back", [ferry.claim_new_job(key=key, tenant=tenant)], **error())
    counts = preview(ferry, "board")
    assert counts == {("ashore", ""): 4, ("ashore", "duplicate"): 2}
    assert counts == apply_and_count(ferry, "board")
    ferry.create_job(key=k, tenant="a")
    assert preview(ferry, "board") == {("ashore", ""): 3, ("ashore", "duplicate"): 3, ("waiting", "already"): 1}


def test_of_many_before_a_slot_one_enters_by_any_alternative_unless_it_is_taken(open_queue):
    rules = every_word()
    back = Move("back", ("failed",), "ready", by=("operator",), run_at="now", action="go")
    alone = Move("go_alone", ("ready",), "alone", by=("operator",), action="go")
    scene = open_queue(replace(rules, moves=(*rules.moves, back, alone)))
    first, *_ = scene.create_jobs(3, stamps={"first_at": scene.now})
    for action in ("take_slot", "go"):
        counts = preview(scene, action)
        assert counts == {("ready", ""): 1, ("ready", "busy"): 2}
        assert counts == apply_and_count(scene, action)
    scene.move("take_slot", first, **OPERATOR)
    assert preview(scene, "take_slot") == {("ready", "busy"): 2, ("alone", "already"): 1}


def test_a_preview_of_named_jobs_counts_those_that_match_and_changes_nothing(oci):
    failed, other, waiting = oci.create_jobs(3, stamps={"conversion_at": oci.now})
    for job in (failed, other):
        oci.move("MARK_FAILED", job, **OPERATOR)
    before = oci.snapshot(), oci.store.move_counts("oci")
    ids = (failed, failed, waiting, UNKNOWN_ID, "no id")
    assert preview(oci, "MARK_FAILED", ids=ids) == {("FAILED", "already"): 1, ("QUEUED", ""): 1}
    only = Filter(states=("FAILED",))
    assert preview(oci, "MARK_FAILED", only, ids=ids) == {("FAILED", "already"): 1}
    assert preview(oci, "MARK_FAILED", ids=()) == {}
    with pytest.raises(StoreError, match="at most"):
        preview(oci, "MARK_FAILED", ids=[failed] * (MAX_BATCH + 1))
    with pytest.raises(StoreError, match="is not an action that the worker can take"):
        preview(oci, "MARK_FAILED", role="worker")
    with pytest.raises(StoreError, match="has no option 'loud'"):
        preview(oci, "MARK_FAILED", options=frozenset({"loud"}))
    assert (oci.snapshot(), oci.store.move_counts("oci")) == before


@pytest.mark.sql
def test_a_preview_is_one_statement(task, statements):
    task.create_jobs(3)
    with task.store.transaction():  # where SQLite reads through the connection that is watched
        assert sent_by(statements, lambda: preview(task, "cancel")) == 1
