"""Scheduled moves: each at its time, in limited batches, never under a live claim."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

import pytest

from kesin.lifecycle.model import Change, Job, MoveContext, failing_guard
from kesin.store.records import MoveCount
from kesin.workloads.oci.conversions.conversion import PAST_WINDOW, TOO_OLD
from kesin.workloads.oci.lifecycle import OciLimits, oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.scene import DAY, MINUTE, NOW, OPERATOR, Scene, error, sent_by

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")
LIFECYCLES = {"oci": oci_lifecycle(), "pdf": pdf_lifecycle(), "optiplan": optiplan_lifecycle()}
YEARS_S = 10 * 366 * 86_400


class ScheduledMove(NamedTuple):
    """What identifies a scheduled move."""

    queue: str
    name: str
    source: str
    to: str


Story = Callable[[Scene], tuple[Job, int]]  # a job, and the time of its scheduled move
STORIES: dict[ScheduledMove, Story] = {}


def story(queue: str, name: str, source: str, to: str) -> Callable[[Story], Story]:
    def register(story: Story) -> Story:
        STORIES[ScheduledMove(queue, name, source, to)] = story
        return story

    return register


@story("oci", "attempt_cap", "QUEUED", "FAILED")
def the_last_attempt_was_put_off(oci):
    return oci.move("retry_later", oci.claim_new_job(max_attempts=1), **TRANSIENT), oci.now


@story("oci", "attempt_cap", "PROCESSING", "FAILED")
@story("oci", "recover", "PROCESSING", "FAILED")
def the_last_worker_died(oci):
    job = oci.claim_new_job(max_attempts=1)
    return job, job.lease_until


@story("oci", "recover", "PROCESSING", "RETRY")
def a_worker_died(oci):
    job = oci.claim_new_job()
    return job, job.lease_until


@story("oci", "expire", "QUEUED", "FAILED")
def the_click_grew_old(oci):
    job = oci.job(oci.create_job(stamps={"conversion_at": NOW - 10 * DAY}))
    return job, NOW + 80 * DAY


@story("oci", "revive", "FAILED", "RETRY")
def a_failure_may_have_passed(oci):
    job = oci.move("ack_failed", oci.claim_new_job(), **TRANSIENT)
    return job, job.timer_at


@story("oci", "prune", "COMPLETED", "")
def it_was_delivered_long_ago(oci):
    return oci.move("ack", oci.claim_new_job()), NOW + 90 * DAY


@story("oci", "prune", "FAILED", "")
def it_failed_long_ago(oci):
    return oci.move("ack_failed", oci.claim_new_job(), **error("BAD", "VALIDATION")), NOW + 365 * DAY


@story("pdf", "lose", "running", "failed")
def the_renderer_died(pdf):
    job = pdf.claim_new_job()
    return job, job.lease_until


@story("pdf", "expire", "queued", "expired")
def nobody_rendered_it(pdf):
    return pdf.job(pdf.create_job()), NOW + DAY


@story("pdf", "expire", "succeeded", "expired")
def nobody_fetched_it(pdf):
    job = pdf.claim_new_job()
    pdf.clock.advance(60)
    return pdf.move("succeed", job), NOW + MINUTE + DAY


@story("pdf", "prune", "expired", "")
def it_expired_long_ago(pdf):
    return pdf.move("cancel", pdf.create_job(), **OPERATOR), NOW + 7 * DAY


def reached(optiplan, *calls, **details):
    job = optiplan.claim_new_job(**details)
    for call in calls:
        last = optiplan.move(call, job)
    return last if calls else job


@story("optiplan", "attempt_cap", "NEW", "FAILED")
def the_last_runner_died_and_was_recovered(optiplan):
    job = optiplan.claim_new_job(max_attempts=1)
    optiplan.clock.time_us = job.lease_until
    optiplan.sweep("recover", source="NEW")
    return optiplan.job(job), optiplan.now


@story("optiplan", "recover", "NEW", "NEW")
def a_runner_died_early(optiplan):
    job = reached(optiplan, "prepare", "import")
    return job, job.lease_until


@story("optiplan", "recover", "OPTI_RUNNING", "=")
def a_runner_died_late(optiplan):
    job = reached(optiplan, "prepare", "import", "run")
    return job, job.lease_until


@story("optiplan", "xml_timeout", "OPTI_RUNNING", "FAILED")
def no_xml_came(optiplan):
    job = reached(optiplan, "prepare", "import", "run", "release")
    return job, job.timer_at


@story("optiplan", "blocked_timeout", "OPTI_RUNNING", "FAILED")
def the_folder_stayed_away(optiplan):
    held = reached(optiplan, "prepare", "import", "run")
    away = Change(held.id, held.claim_seq, "E_EXPORT_DIR_UNWRITABLE", "TRANSIENT", "away", run_at=NOW + 1)
    job = optiplan.move("block", away)
    return job, job.timer_at


@story("optiplan", "ack_timeout", "XML_READY", "FAILED")
def the_machine_said_nothing(optiplan):
    job = reached(optiplan, "prepare", "import", "run", "collect", "validate", "release")
    return job, job.timer_at


@story("optiplan", "done", "DELIVERED", "DONE")
def the_runner_died_after_the_machine_had_it(optiplan):
    way = ("prepare", "import", "run", "collect", "validate", "deliver", "release")
    return reached(optiplan, *way), optiplan.now


@story("optiplan", "prune", "DONE", "")
def the_order_was_done_long_ago(optiplan):
    way = ("prepare", "import", "run", "collect", "validate", "deliver", "done")
    return reached(optiplan, *way), NOW + 365 * DAY


def test_every_scheduled_move_there_is_has_its_story():
    assert set(STORIES) == {
        ScheduledMove(name, move.name, move.sources[0], move.to)
        for name, lifecycle in LIFECYCLES.items()
        for move in lifecycle.scheduled_moves
    }


def is_timed(move):
    """Whether there is a microsecond too early for the move: the others may be made at once."""
    capped_at_rest = move.name == "attempt_cap" and move.source in ("QUEUED", "NEW")
    return move.name != "done" and not capped_at_rest


def test_a_scheduled_move_is_made_once_at_its_time_as_the_model_makes_it(open_queue):
    beside = {name: open_queue(rules, f"{name}_beside") for name, rules in LIFECYCLES.items()}
    for number, (key, story) in enumerate(STORIES.items()):
        scene = open_queue(LIFECYCLES[key.queue], f"{key.queue}{number}")
        move = next(
            move
            for move in scene.lifecycle.scheduled_moves
            if (move.name, move.to) == (key.name, key.to) and key.source in move.sources
        )
        before, when = story(scene)
        assert sweep(beside[key.queue], move, when) == 0, f"{key}: a sweep moved a job of another queue"
        if is_timed(key):
            assert sweep(scene, move, when - 1) == 0, key
        assert scene.job(before) == before, key
        assert [sweep(scene, move, when) for _ in range(2)] == [1, 0], key
        assert scene.store.job(before.id) == expected(scene, move, before), key


def sweep(scene, move, now):
    scene.clock.time_us = now
    return scene.store.sweep(scene.queue, move, limit=1_000, now=now)


def expected(scene, move, before):
    """The model's job after the move and, where it is chained, after the second link."""
    if move.prunes:
        return None
    after = scene.modelled(move, before, actor="clock")
    context = MoveContext(scene.now, "clock")
    for link in scene.lifecycle.chained_moves(move):
        if "clock" in link.by and not failing_guard(link, after, scene.lifecycle, context, None):
            return scene.modelled(link, after, actor="clock")
    return after


@pytest.mark.parametrize("queue", ["oci", "pdf"])
def test_no_sweep_touches_a_live_claim(open_queue, queue):
    scene = open_queue(LIFECYCLES[queue])
    stamps = {"conversion_at": NOW} if queue == "oci" else {}
    scene.create_job(max_attempts=1, stamps=stamps)
    (job,) = scene.claim(lease_s=2 * YEARS_S)
    scene.clock.advance(YEARS_S)
    assert [scene.store.sweep(queue, move, limit=10, now=scene.now) for move in scene.lifecycle.scheduled_moves] == [
        0
    ] * len(scene.lifecycle.scheduled_moves)
    assert scene.job(job) == job


def test_no_deadline_takes_a_job_from_its_live_worker(optiplan):
    optiplan.create_job()
    (job,) = optiplan.claim(lease_s=2 * YEARS_S)
    for action in (None, "prepare", "import", "run", "collect", "validate", "deliver"):
        if action:
            job = optiplan.move(action, Change(job.id, 2))
        years_later = optiplan.now + YEARS_S
        for move in optiplan.lifecycle.scheduled_moves:
            optiplan.store.sweep("optiplan", move, limit=10, now=years_later)
        assert optiplan.job(job) == job


# Batches and order


def test_a_sweep_moves_no_more_than_its_limit_of_one_tenant_or_of_many(oci):
    jobs = oci.claim_new_jobs(5)
    oci.clock.time_us = jobs[0].lease_until
    moved = [oci.sweep("recover", to="RETRY", limit=limit) for limit in (0, 2, 2, 2, 2)]
    assert moved == [0, 2, 2, 1, 0]
    for number in range(8):
        oci.move("ack", oci.claim_new_job(tenant="abcd"[max(number - 4, 0)]))
    oci.clock.advance(91 * 86_400)
    assert [oci.sweep("prune", source="COMPLETED", limit=3) for _ in range(4)] == [3, 3, 2, 0]


def test_the_earliest_timer_is_served_first(oci):
    jobs = [oci.move("ack_failed", job, **TRANSIENT) for job in oci.claim_new_jobs(6)]
    first = sorted(jobs, key=lambda job: job.timer_at)[:3]
    oci.clock.advance(3_600)
    oci.sweep("revive", limit=3)
    assert {job.id for job in oci.all().values() if job.state == "RETRY"} == {j.id for j in first}


def test_the_oldest_click_expires_first_and_a_job_with_an_end_of_its_own_there(oci):
    """The fourth stamp is indexed like the first; a job without it stays."""
    for action, stamp, days in (("expire", "conversion_at", 90), ("end", "expires_at", 0)):
        sold = {"conversion_at": NOW - 40 * DAY}
        ages = {oci.create_job(stamps={**sold, stamp: NOW - (days + d) * DAY}): d for d in (1, 5, 3, 4, -1)}
        oci.create_job(stamps=sold)

        def gone(ages=ages):
            return {ages[job.id] for job in oci.all().values() if job.state == "FAILED" and job.id in ages}

        assert oci.sweep(action, limit=2) == 2, action
        assert gone() == {5, 4}
        assert oci.sweep(action) == 2
        assert gone() == {5, 4, 3, 1}


def test_jobs_from_before_a_lifecycle_had_the_fourth_stamp_live_on_beside_new_ones(store):
    new = oci_lifecycle(OciLimits(too_recent_waits=0))
    moves = [replace(m, stamp_input=m.stamp_input[:1]) for m in new.moves if m.action != "end"]
    before = Scene(store, "oci", replace(new, stamps=new.stamps[:3], moves=tuple(moves)))
    old = before.create_job(stamps={"conversion_at": NOW - 89 * DAY})
    oci = Scene(store, "oci", new)
    oci.clock.time_us += MINUTE
    young = oci.create_job(stamps={"conversion_at": NOW, "expires_at": NOW + 2 * DAY})
    oci.clock.time_us += DAY
    assert (oci.sweep("end"), oci.sweep("expire")) == (0, 1)
    oci.clock.time_us += DAY
    assert (oci.sweep("expire"), oci.sweep("end")) == (0, 1)
    messages = [oci.job(job).error_message for job in (old, young)]
    assert messages == [TOO_OLD, PAST_WINDOW]


def test_a_spent_job_whose_worker_died_is_capped_before_it_could_be_recovered(oci):
    job = oci.claim_new_job(max_attempts=1)
    oci.clock.time_us = job.lease_until
    for move in oci.lifecycle.scheduled_moves:
        oci.store.sweep("oci", move, limit=10, now=oci.now)
    assert oci.history(job) == ["enqueue", "claim", "attempt_cap"]


def test_sweeping_many_costs_the_same_number_of_statements_as_sweeping_one(oci, statements):
    jobs = oci.claim_new_jobs(100)
    oci.clock.time_us = jobs[0].lease_until
    single = sent_by(statements, lambda: oci.sweep("recover", to="RETRY", limit=1))
    assert sent_by(statements, lambda: oci.sweep("recover", to="RETRY")) == single


# Concurrency


def sweep_by_four_threads(scene, name, **how):
    """Sweep until nothing is left; return how many jobs were moved."""

    def exhaust(_):
        return sum(iter(lambda: scene.sweep(name, **how), 0))

    with ThreadPoolExecutor(4) as pool:
        return sum(pool.map(exhaust, range(4))) + exhaust(0)


def test_sweeps_at_once_move_each_job_once(oci):
    jobs = oci.claim_new_jobs(60)
    oci.clock.time_us = jobs[0].lease_until
    assert sweep_by_four_threads(oci, "recover", to="RETRY", limit=6) == 60
    assert {len(events) for _, events in oci.store.scan("oci")} == {3}


def test_prunes_at_once_count_each_job_once(oci):
    oci.apply("ack", oci.claim_new_jobs(60))
    oci.clock.advance(91 * 86_400)
    assert sweep_by_four_threads(oci, "prune", source="COMPLETED", limit=7) == 60
    assert MoveCount("default", "prune", "COMPLETED", "", 60, NOW) in oci.store.move_counts("oci")


def test_of_a_sweep_and_a_late_worker_at_once_one_moves_the_job(oci):
    jobs = oci.claim_new_jobs(40)
    oci.clock.time_us = jobs[0].lease_until
    with ThreadPoolExecutor(4) as pool:
        swept = [pool.submit(oci.sweep, "recover", to="RETRY", limit=5) for _ in range(8)]
        acked = [pool.submit(oci.apply_one, "release", job) for job in jobs]
        moved = sum(future.result() for future in swept)
        released = sum(future.result().result == "moved" for future in acked)
    assert moved + released + oci.sweep("recover", to="RETRY") == 40
    assert {len(events) for _, events in oci.store.scan("oci")} == {3}
