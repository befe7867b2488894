"""Workers and sweepers killed at random times, in a statement, a commit or a handler."""

from __future__ import annotations

import random

import pytest

from tests.apart import Start
from tests.faults import cast
from tests.faults.cast import LEASE_S
from tests.faults.conftest import Place, bring_to_rest, end_of_leases, fill

JOBS = 40
LATEST_S = 0.2


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return 40 if request.config.getoption("--long") else 2


def test_whoever_is_killed_at_any_time_everything_is_done_once(place: Place, start: Start, rounds: int):
    """Two work and sweep at once, by clocks at which the leases of those before are over."""
    address = place.new()
    queue = address.queue(place.store)
    chance = random.Random()  # no seed would bring a kill back to where it was
    answered_ids: list[str] = []
    for number in range(rounds):
        answered_ids += fill(queue, JOBS)
        end_of_leases(queue)
        ahead_s = 2 * LEASE_S * (number + 1)
        pair = [start(cast.work_on, address, batch, ahead_s) for batch in (4, 40)]
        for member in pair:
            assert member.hear() == "ready"
            member.go()
        for member in pair:
            member.process.join(chance.uniform(0, LATEST_S))
            member.process.kill()
        for member in pair:
            member.last_words()
        place.bury()
    report = bring_to_rest(queue, answered_ids)
    assert (report.jobs, report.untold) == (rounds * JOBS, 0)
