"""Who dies before a call, inside its transaction or after its commit leaves the store whole."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import Start
from tests.faults import cast
from tests.faults.cast import Moment, Point
from tests.faults.conftest import Place, bring_to_rest, fill, made

JOBS = 4
KEYS = ("k0", "k1", "k2")
# Before the call nothing has happened yet, as when its transaction is rolled back.
moments = pytest.mark.parametrize("moment", [pytest.param("before", marks=pytest.mark.long), "after", "inside"])


@moments
def test_a_producer_that_sends_again_what_it_was_not_told_of_makes_each_job_once(
    place: Place, start: Start, moment: Moment
):
    address = place.new()
    queue = address.queue(place.store)
    answered_ids = start(cast.produce, address, Point("enqueue", moment, 2), KEYS).last_words()
    place.bury()
    assert len(answered_ids) == 1
    assert made(queue, "enqueue") == (2 if moment == "after" else 1)
    again = [queue.enqueue({"key": key}, key=key) for key in KEYS]
    assert [outcome.id for outcome in again[:1]] == answered_ids
    known = ["duplicate", "duplicate" if moment == "after" else "inserted", "inserted"]
    assert [outcome.result for outcome in again] == known
    report = bring_to_rest(queue, [outcome.id for outcome in again])
    assert (report.jobs, report.untold, report.lost_claims) == (3, 0, 0)


@moments
def test_a_worker_that_dies_at_its_claim_takes_nothing_along(place: Place, start: Start, moment: Moment):
    address = place.new()
    queue = address.queue(place.store)
    ids = fill(queue, JOBS)
    assert len(start(cast.work, address, Point("claim", moment, 2)).last_words()) == 1
    place.bury()
    taken = moment == "after"
    assert (made(queue, "claim"), made(queue, "complete")) == (1 + taken, 1)
    report = bring_to_rest(queue, ids)
    assert (report.jobs, report.lost_claims, report.claims) == (JOBS, taken, JOBS + taken)


@moments
def test_a_worker_that_dies_at_its_answer_has_given_it_or_not(place: Place, start: Start, moment: Moment):
    address = place.new()
    queue = address.queue(place.store)
    ids = fill(queue, JOBS)
    assert len(start(cast.work, address, Point("apply", moment, 2)).last_words()) == 2
    place.bury()
    given = moment == "after"
    assert made(queue, "complete") == 1 + given
    report = bring_to_rest(queue, ids)
    assert (report.states["done"], report.lost_claims, report.most_attempts) == (JOBS, not given, 1 if given else 2)


def test_an_answer_and_what_is_written_beside_it_are_both_there_or_neither(place: Place, start: Start):
    address = place.new()
    queue = address.queue(place.store)
    ids = fill(queue, JOBS)
    assert len(start(cast.work_beside, address, None).last_words()) == 1
    place.bury()
    assert made(queue, "complete") == 0
    assert bring_to_rest(queue, ids).lost_claims == 1


@moments
def test_a_worker_that_dies_at_a_renewal_holds_its_job_no_longer_than_it_was_told(
    place: Place, start: Start, moment: Moment
):
    address = place.new()
    queue = address.queue(place.store)
    ids = fill(queue, 1)
    [(job_id, lease_until)] = start(cast.renew, address, Point("renew", moment)).last_words()
    place.bury()
    job: Any = queue.job(job_id)
    assert (job.lease_until > lease_until) == (moment == "after")
    assert job.state == "running"
    report = bring_to_rest(queue, ids)
    assert (report.states["done"], report.lost_claims, report.most_attempts) == (1, 1, 2)


@moments
def test_a_sweeper_that_dies_has_swept_all_of_a_batch_or_none(place: Place, start: Start, moment: Moment):
    address = place.new()
    queue = address.queue(place.store)
    ids = fill(queue, JOBS)
    assert len(queue.claim("lost", limit=3)) == 3
    start(cast.sweep, address, Point("sweep", moment)).last_words()
    place.bury()
    assert made(queue, "recover") == (3 if moment == "after" else 0)
    report = bring_to_rest(queue, ids)
    assert (report.states["done"], report.lost_claims, report.most_attempts) == (JOBS, 3, 2)


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)  # in Redis, one script
def test_a_chain_whose_sweeper_dies_between_its_links_is_not_made(place: Place, start: Start):
    address = place.new("pdf")
    queue = address.queue(place.store)
    ids = fill(queue, JOBS)
    assert len(queue.claim("lost", limit=3)) == 3
    start(cast.sweep, address, Point("_judge_safely", "before")).last_words()
    assert (made(queue, "lose"), made(queue, "requeue")) == (0, 0)
    report = bring_to_rest(queue, ids)
    assert (report.states["succeeded"], report.lost_claims) == (JOBS, 3)
    assert (made(queue, "lose"), made(queue, "requeue")) == (3, 3)
