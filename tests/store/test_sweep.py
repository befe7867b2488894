"""The clock's moves: each one when its time has come, in limited batches, never under a claim."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from kesin.lifecycle.model import Change, Job, MoveContext, failing_guard
from kesin.store.errors import UnknownQueue
from kesin.store.records import MoveCount
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.optiplan.lifecycle import optiplan_lifecycle
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.scene import DAY, MINUTE, NOW, OPERATOR, Scene, error, sent_by

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")
LIFECYCLES = {
    "oci": oci_lifecycle(),
    "pdf": pdf_lifecycle(),
    "optiplan": optiplan_lifecycle(),
}
YEARS_S = 10 * 366 * 86_400


class Move(NamedTuple):
    """A clock move by what tells it from all others."""

    queue: str
    name: str
    source: str
    to: str


Story = Callable[[Scene], tuple[Job, int]]  # a job, and when the clock may move it
STORIES: dict[Move, Story] = {}


def story(queue: str, name: str, source: str, to: str) -> Callable[[Story], Story]:
    def tell(one: Story) -> Story:
        STORIES[Move(queue, name, source, to)] = one
        return one

    return tell


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
    return oci.move(
        "ack_failed", oci.claim_new_job(), **error("BAD", "VALIDATION")
    ), NOW + 365 * DAY


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


@pytest.fixture
def scene(request, open_queue):
    """A queue under the lifecycle of the move at hand."""
    return open_queue(LIFECYCLES[request.node.callspec.params["move"].queue])


def declared(scene, move):
    return (
        scene.declared(move.name, source=move.source, to=move.to, by="clock")
        if move.to
        else next(
            one
            for one in scene.lifecycle.scheduled_moves
            if one.prunes and move.source in one.sources
        )
    )


def sweep(scene, move, **how):
    how = {"limit": 1_000, **how}
    return scene.store.sweep(scene.queue, declared(scene, move), now=scene.now, **how)


every_move = pytest.mark.parametrize("move", list(STORIES), ids="-".join)


def test_every_clock_move_there_is_has_its_story():
    assert set(STORIES) == {
        Move(name, move.name, move.sources[0], move.to)
        for name, lifecycle in LIFECYCLES.items()
        for move in lifecycle.scheduled_moves
    }


@every_move
def test_the_clock_makes_the_move_the_model_makes(scene, move):
    before, when = STORIES[move](scene)
    scene.clock.time_us = when
    assert sweep(scene, move) == 1
    assert scene.store.job(before.id) == expected(scene, declared(scene, move), before)


def expected(scene, move, before):
    """The model's job after the move and, where it is chained, after the second link."""
    if move.prunes:
        return None
    after = scene.modelled(move, before, actor="clock")
    asked = MoveContext(scene.now, "clock")
    for link in scene.lifecycle.chained_moves(move):
        if "clock" in link.by and not failing_guard(link, after, scene.lifecycle, asked, None):
            return scene.modelled(link, after, actor="clock")
    return after


@every_move
def test_the_clock_makes_the_move_once(scene, move):
    _, when = STORIES[move](scene)
    scene.clock.time_us = when
    assert [sweep(scene, move) for _ in range(2)] == [1, 0]


TIMED = [
    move
    for move in STORIES
    if move.name != "done" and not (move.name == "attempt_cap" and move.source in ("QUEUED", "NEW"))
]


@pytest.mark.parametrize("move", TIMED, ids="-".join)
def test_the_clock_makes_no_move_a_microsecond_early(scene, move):
    before, when = STORIES[move](scene)
    scene.clock.time_us = when - 1
    assert sweep(scene, move) == 0
    assert scene.job(before) == before


@every_move
def test_a_sweep_leaves_jobs_of_other_queues_alone(scene, move, open_queue):
    other = open_queue(scene.lifecycle, "other")
    before, when = STORIES[move](other)
    scene.clock.time_us = when
    assert sweep(scene, move) == 0
    assert other.job(before) == before


@pytest.mark.parametrize("queue", LIFECYCLES)
def test_no_sweep_touches_a_live_claim(open_queue, queue):
    scene = open_queue(LIFECYCLES[queue])
    stamps = {"conversion_at": NOW} if queue == "oci" else {}
    scene.create_job(max_attempts=1, stamps=stamps)
    (job,) = scene.claim(lease_s=2 * YEARS_S)
    scene.clock.advance(YEARS_S)
    assert [
        scene.store.sweep(queue, move, limit=10, now=scene.now)
        for move in scene.lifecycle.scheduled_moves
    ] == [0] * len(scene.lifecycle.scheduled_moves)
    assert scene.job(job) == job


@pytest.mark.parametrize("steps", range(7))
def test_no_deadline_takes_a_job_from_its_live_runner(optiplan, steps):
    optiplan.create_job()
    (job,) = optiplan.claim(lease_s=2 * YEARS_S)
    for call in ("prepare", "import", "run", "collect", "validate", "deliver")[:steps]:
        job = optiplan.move(call, Change(job.id, 2))
    optiplan.clock.advance(YEARS_S)
    for move in optiplan.lifecycle.scheduled_moves:
        optiplan.store.sweep("optiplan", move, limit=10, now=optiplan.now)
    assert optiplan.job(job) == job


# Batches and order


def test_a_sweep_moves_no_more_than_its_limit(oci):
    jobs = oci.claim_new_jobs(5)
    oci.clock.time_us = jobs[0].lease_until
    assert [oci.sweep("recover", to="RETRY", limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_prune_takes_no_more_than_its_limit(oci):
    oci.apply("ack", oci.claim_new_jobs(5))
    oci.clock.advance(91 * 86_400)
    assert [oci.sweep("prune", source="COMPLETED", limit=2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_prune_over_many_tenants_takes_no_more_than_its_limit(oci):
    for tenant in "abcd":
        oci.move("ack", oci.claim_new_job(tenant=tenant))
    oci.clock.advance(91 * 86_400)
    assert [oci.sweep("prune", source="COMPLETED", limit=3) for _ in range(3)] == [3, 1, 0]


def test_a_sweep_of_nothing_moves_nothing(oci):
    jobs = oci.claim_new_jobs(2)
    oci.clock.time_us = jobs[0].lease_until
    assert oci.sweep("recover", to="RETRY", limit=0) == 0


def test_the_timer_that_went_off_first_is_heard_first(oci):
    jobs = [oci.move("ack_failed", job, **TRANSIENT) for job in oci.claim_new_jobs(6)]
    first = sorted(jobs, key=lambda job: job.timer_at)[:3]
    oci.clock.advance(3_600)
    oci.sweep("revive", limit=3)
    assert {job.id for job in oci.all().values() if job.state == "RETRY"} == {j.id for j in first}


def test_the_oldest_click_expires_first(oci):
    ages = {oci.create_job(stamps={"conversion_at": NOW - d * DAY}): d for d in (91, 95, 93, 94)}
    oci.sweep("expire", limit=2)
    gone = {ages[job.id] for job in oci.all().values() if job.state == "FAILED"}
    assert gone == {95, 94}


def test_the_clocks_moves_come_stage_by_stage():
    order = ("cap", "recover", "expire", "revive", "timeout", "prune")
    for lifecycle in LIFECYCLES.values():
        stages = [order.index(move.stage) for move in lifecycle.scheduled_moves]
        assert stages == sorted(stages)


def test_a_spent_job_whose_worker_died_is_capped_before_it_could_be_recovered(oci):
    job = oci.claim_new_job(max_attempts=1)
    oci.clock.time_us = job.lease_until
    for move in oci.lifecycle.scheduled_moves:
        oci.store.sweep("oci", move, limit=10, now=oci.now)
    assert oci.history(job) == ["enqueue", "claim", "attempt_cap"]


def test_sweeping_many_costs_the_same_number_of_statements_as_sweeping_one(oci, statements):
    jobs = oci.claim_new_jobs(100)
    oci.clock.time_us = jobs[0].lease_until
    one = sent_by(statements, lambda: oci.sweep("recover", to="RETRY", limit=1))
    assert sent_by(statements, lambda: oci.sweep("recover", to="RETRY")) == one


def test_an_unknown_queue_is_refused_by_name(oci):
    with pytest.raises(UnknownQueue, match="'nope'"):
        oci.store.sweep("nope", oci.declared("expire"), limit=1, now=NOW)


# Many at once


def test_sweeps_at_once_move_each_job_once(oci):
    jobs = oci.claim_new_jobs(120)
    oci.clock.time_us = jobs[0].lease_until

    def exhaust(_):
        return sum(iter(lambda: oci.sweep("recover", to="RETRY", limit=11), 0))

    with ThreadPoolExecutor(4) as pool:
        moved = sum(pool.map(exhaust, range(4))) + exhaust(0)
    assert moved == 120
    assert {len(events) for _, events in oci.store.scan("oci")} == {3}


def test_prunes_at_once_count_each_job_once(oci):
    oci.apply("ack", oci.claim_new_jobs(60))
    oci.clock.advance(91 * 86_400)

    def exhaust(_):
        return sum(iter(lambda: oci.sweep("prune", source="COMPLETED", limit=7), 0))

    with ThreadPoolExecutor(4) as pool:
        moved = sum(pool.map(exhaust, range(4))) + exhaust(0)
    assert moved == 60
    assert MoveCount("default", "prune", "COMPLETED", "", 60, NOW) in oci.store.move_counts("oci")


def test_a_sweep_and_the_late_worker_at_once_leave_one_of_both(oci):
    jobs = oci.claim_new_jobs(40)
    oci.clock.time_us = jobs[0].lease_until
    with ThreadPoolExecutor(4) as pool:
        swept = [pool.submit(oci.sweep, "recover", to="RETRY", limit=5) for _ in range(8)]
        acked = [pool.submit(oci.apply_one, "release", job) for job in jobs]
        moved = sum(one.result() for one in swept)
        released = sum(one.result().result == "moved" for one in acked)
    assert moved + released + oci.sweep("recover", to="RETRY") == 40
    assert {len(events) for _, events in oci.store.scan("oci")} == {3}
