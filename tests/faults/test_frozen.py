"""A worker stopped past its lease, and woken when others have its jobs."""

from __future__ import annotations

import signal
from pathlib import Path

from kesin.engine.sweeper import Sweeper
from tests.apart import Member, Start
from tests.cli.programs import wait_until
from tests.faults import cast
from tests.faults.conftest import Place, bring_to_rest, end_of_leases, fill


def is_stopped(member: Member) -> bool:
    stat = Path(f"/proc/{member.process.pid}/stat").read_text()
    return stat.rsplit(")", 1)[1].split()[0] == "T"


def test_who_comes_back_after_its_lease_is_refused_and_that_is_noted(place: Place, start: Start):
    """One of its jobs was done by another meanwhile, and one is just being worked on."""
    address = place.new()
    queue = address.queue(place.store)
    ids = fill(queue, 2)
    frozen = start(cast.freeze, address)
    assert sorted(frozen.hear()) == sorted(ids)
    frozen.signal(signal.SIGSTOP)
    wait_until(lambda: is_stopped(frozen))
    end_of_leases(queue)
    assert Sweeper([queue]).sweep(("recover",)).total == 2
    done, held = queue.claim("heir", limit=2)
    assert queue.move(done, "complete", result="in time").result == "moved"

    frozen.go()
    frozen.signal(signal.SIGCONT)
    ended, renewed = frozen.hear()

    assert (ended, renewed) == ({}, set())
    for job in (done, held):
        notes = [(note.kind, note.actor) for note in queue.notes(job.id)]
        assert notes == [("stale", "frozen")]
    jobs = queue.find([done.id, held.id])
    assert (jobs[done.id].state, jobs[done.id].result) == ("done", "in time")
    assert (jobs[held.id].state, jobs[held.id].worker) == ("running", "heir")
    assert queue.move(held, "complete", result="in time").result == "moved"
    report = bring_to_rest(queue, ids)
    assert (report.states["done"], report.claims, report.lost_claims) == (2, 4, 2)
