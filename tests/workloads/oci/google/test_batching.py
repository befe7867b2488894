from collections.abc import Iterator
from datetime import UTC
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.google.channel import ConnectionTrouble, RequestFailure, RowAccepted, RowRefused
from kesin.workloads.oci.google.client import MAX_REQUESTS, RequestReply, chunk_positions, deliver, separate_twins
from tests.workloads.oci.rows import START, row, rows

BAD = RowRefused("INVALID_ARGUMENT", "bad", Category.VALIDATION)
DOWN = RequestFailure(
    RowRefused("UNAVAILABLE", "down", Category.TRANSIENT), ConnectionTrouble("TRANSIENT", "UNAVAILABLE", "down")
)


def ids(part):
    return [int(one.job_id.removeprefix("job-")) for one in part]


class Fake:
    """Refuses every request with a guilty row in it, and names nobody."""

    def __init__(self, guilty=()):
        self.guilty = set(guilty)
        self.requests = []

    def __call__(self, part):
        self.requests.append(ids(part))
        if self.guilty.intersection(self.requests[-1]):
            return RequestFailure(BAD)
        return RequestReply([RowAccepted()] * len(part), request_id=f"r{len(self.requests)}")


def test_guilty_rows_are_found_by_halving():
    fake = Fake({3, 700})
    sent = deliver(rows(1_000), chunk_positions(range(1_000)), fake)
    assert [n for n, row in enumerate(sent.rows) if row == BAD] == [3, 700]
    assert sum(isinstance(row, RowAccepted) for row in sent.rows) == 998
    assert sent.trouble is None
    assert len(fake.requests) <= MAX_REQUESTS
    assert len(sent.request_ids) == sum(not fake.guilty.intersection(part) for part in fake.requests)


@settings(max_examples=25)
@given(st.sets(st.integers(0, 49)))
def test_only_the_guilty_are_refused_and_everybody_is_answered_once(guilty):
    fake = Fake(guilty)
    sent = deliver(rows(50), chunk_positions(range(50)), fake)
    taken = [n for part in fake.requests if not guilty.intersection(part) for n in part]
    assert len(taken) == len(set(taken))
    accepted = {n for n, row in enumerate(sent.rows) if isinstance(row, RowAccepted)}
    assert accepted == set(taken)
    assert accepted.isdisjoint(guilty)
    assert len(fake.requests) <= MAX_REQUESTS
    left = set(range(50)) - accepted - {n for n, row in enumerate(sent.rows) if row == BAD}
    assert all(sent.rows[n].category is Category.TRANSIENT for n in left)


def test_what_is_left_after_many_requests_waits_and_a_row_that_never_left_pays_nothing():
    fake = Fake(range(0, 2_000, 40))
    sent = deliver(rows(2_010), chunk_positions(range(2_010)), fake)
    assert len(fake.requests) == MAX_REQUESTS
    left = [row for row in sent.rows[:2_000] if isinstance(row, RowRefused) and row != BAD]
    assert {(row.code, row.category, row.was_sent) for row in left} == {("REQUEST_REFUSED", Category.TRANSIENT, True)}
    assert [(row.code, row.was_sent) for row in sent.rows[2_000:]] == [("CIRCUIT_OPEN", False)] * 10


def test_rows_are_not_to_blame_when_every_request_is_refused():
    fake = Fake(range(2_000))
    sent = deliver(rows(2_000), chunk_positions(range(2_000)), fake)
    assert {(row.code, row.category) for row in sent.rows} == {("REQUEST_REFUSED", Category.TRANSIENT)}
    assert sent.trouble.kind == "TRANSIENT"


def test_after_trouble_nothing_more_is_sent_and_what_was_not_sent_costs_nothing():
    answers: Iterator[Any] = iter([RequestReply([RowAccepted()] * 2), DOWN])
    sent = deliver(rows(6), [[0, 1], [2, 3], [4, 5]], lambda _part: next(answers))
    assert [type(row) for row in sent.rows[:2]] == [RowAccepted] * 2
    assert sent.rows[2:4] == [DOWN.refused] * 2
    assert [(row.code, row.was_sent) for row in sent.rows[4:]] == [("CIRCUIT_OPEN", False)] * 2
    assert sent.trouble == DOWN.trouble


def test_trouble_while_halving_leaves_the_others_alone():
    answers: Iterator[Any] = iter([RequestFailure(BAD), RequestReply([RowAccepted()] * 2), DOWN])
    sent = deliver(rows(8), [range(4), range(4, 8)], lambda _part: next(answers))
    assert [type(row) for row in sent.rows[:2]] == [RowAccepted] * 2
    assert sent.rows[2:4] == [DOWN.refused] * 2
    assert not any(row.was_sent for row in sent.rows[4:])


def test_rows_that_share_an_order_or_a_click_and_a_second_are_sent_apart():
    twins = [
        row(0),
        row(1),
        row(2, order_id=row(0).conversion.order_id),
        row(3, gclid=row(1).conversion.gclid, at=row(1).conversion.at.astimezone(UTC)),
        row(4, gclid=row(1).conversion.gclid),
    ]
    assert separate_twins(twins) == [[0, 1, 4], [2, 3]]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_no_request_holds_twins(pairs):
    some = [row(0, gclid=f"click-{c}", order_id=f"order-{o}", at=START) for c, o in pairs]
    parts = separate_twins(some)
    assert sorted(n for part in parts for n in part) == list(range(len(some)))
    for part in parts:
        assert len({pairs[n][0] for n in part}) == len({pairs[n][1] for n in part}) == len(part)


def test_no_request_is_larger_than_google_takes():
    assert [len(part) for part in separate_twins(rows(4_500))] == [2_000, 2_000, 500]
    assert [len(part) for part in chunk_positions(range(4_500))] == [2_000, 2_000, 500]
    assert chunk_positions(range(0)) == separate_twins([]) == []


def test_a_crowd_of_twins_does_not_make_endless_requests():
    fake = Fake()
    crowd = [row(n, gclid="one-click", at=START) for n in range(100)]
    sent = deliver(crowd, separate_twins(crowd), fake)
    assert len(fake.requests) == MAX_REQUESTS
    assert sum(isinstance(row, RowAccepted) for row in sent.rows) == MAX_REQUESTS
    assert [row.was_sent for row in sent.rows[MAX_REQUESTS:]] == [False] * (100 - MAX_REQUESTS)
