"""The circuit breaker: what opens it, what it lets through, what closes it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.foundation.messages import Message
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.oci.google.channel import ConnectionTrouble
from kesin.workloads.oci.google.circuit_breaker import (
    FAILURES_TO_OPEN,
    JITTER_S,
    MAX_CHECK_PAUSE_S,
    MAX_OPEN_S,
    OPEN_S,
    PROBE_ROWS,
    Breaker,
    next_breaker,
)

NOW = 1_700_000_000_000_000
PASSING = ConnectionTrouble("TRANSIENT", "HTTP_503", "away")
WRONG = ConnectionTrouble("AUTH", "INVALID_GRANT", "revoked")


def seconds(breaker: Breaker, now: int = NOW) -> float:
    assert breaker.probe_at is not None
    return (breaker.probe_at - now) / SECOND_US


def failed(times: int, trouble: ConnectionTrouble = PASSING) -> Breaker:
    breaker = Breaker()
    for _ in range(times):
        breaker = next_breaker(breaker, trouble, NOW, 0)
    return breaker


def test_it_stays_closed_below_five_failures_in_a_row():
    breaker = failed(FAILURES_TO_OPEN - 1)
    assert (breaker.state(NOW), breaker.max_rows(NOW, 2_000)) == ("closed", 2_000)
    after_success = next_breaker(breaker, None, NOW, 0)
    assert next_breaker(after_success, PASSING, NOW, 0).state(NOW) == "closed"


def test_the_fifth_failure_opens_it_for_five_minutes_and_jitter():
    assert seconds(failed(FAILURES_TO_OPEN)) == OPEN_S
    assert seconds(next_breaker(failed(FAILURES_TO_OPEN - 1), PASSING, NOW, 1.0)) == OPEN_S + JITTER_S


def test_open_it_lets_nothing_through_and_half_open_a_probe_of_five():
    breaker = failed(FAILURES_TO_OPEN)
    later = NOW + OPEN_S * SECOND_US
    assert (breaker.state(later - 1), breaker.max_rows(later - 1, 2_000)) == ("open", 0)
    assert (breaker.state(later), breaker.max_rows(later, 2_000)) == ("half_open", PROBE_ROWS)
    assert breaker.max_rows(later, 2) == 2


def test_a_failed_probe_opens_it_again_at_once():
    later = NOW + OPEN_S * SECOND_US
    again = next_breaker(failed(FAILURES_TO_OPEN), PASSING, later, 0)
    assert again.state(later) == "open"
    assert again.opened_at == NOW


@pytest.mark.parametrize(("pause_s", "open_s"), [(7_200, 7_200), (1e9, MAX_OPEN_S)])
def test_a_named_pause_opens_it_at_the_first_time_for_a_day_at_most(pause_s, open_s):
    trouble = ConnectionTrouble("RATE_LIMIT", "HTTP_429", "slow", pause_s)
    breaker = next_breaker(Breaker(), trouble, NOW, 1.0)
    assert (breaker.state(NOW), seconds(breaker)) == ("open", open_s)


def test_wrong_credentials_open_it_at_once_and_never_for_a_probe():
    breaker = next_breaker(Breaker(), WRONG, NOW, 0)
    forever = NOW + 10**15
    assert (breaker.state(forever), breaker.max_rows(forever, 2_000)) == ("open", 0)


def test_checks_of_wrong_credentials_grow_rarer_up_to_an_hour():
    breaker, pauses = Breaker(), []
    for _ in range(7):
        breaker = next_breaker(breaker, WRONG, NOW, 0)
        pauses.append(seconds(breaker))
    assert pauses == [300, 600, 1_200, 2_400, *[MAX_CHECK_PAUSE_S] * 3]


@pytest.mark.parametrize("outcome", [None, PASSING, ConnectionTrouble("RATE_LIMIT", "HTTP_429", "x", 5)])
def test_an_upload_still_under_way_does_not_close_what_wrong_credentials_opened(outcome):
    breaker = next_breaker(Breaker(), WRONG, NOW, 0)
    assert next_breaker(breaker, outcome, NOW, 0) == breaker


def test_a_stored_breaker_keeps_the_parts_of_its_message():
    message = Message("the token endpoint returned %(status)s", status=500)
    stored = json.loads(json.dumps(Breaker(code="X", message=message).to_dict()))
    restored = Breaker.from_dict(stored).message
    assert isinstance(restored, Message)
    assert restored.to_json() == message.to_json()


def test_a_check_is_wanted_when_its_time_has_come():
    breaker = next_breaker(Breaker(), WRONG, NOW, 0)
    assert not breaker.wants_check(NOW)
    assert breaker.wants_check(NOW + OPEN_S * SECOND_US)
    assert not failed(FAILURES_TO_OPEN).wants_check(NOW + 10**15)


@pytest.mark.parametrize("stored", [None, {}, {"strange": 1}])
def test_nothing_stored_is_a_closed_breaker(stored):
    assert Breaker.from_dict(stored) == Breaker()


TROUBLES = st.builds(
    ConnectionTrouble,
    st.sampled_from(["TRANSIENT", "RATE_LIMIT", "AUTH"]),
    st.just("X"),
    st.just("x"),
    st.none() | st.floats(0, 1e7),
)


@given(st.lists(st.none() | TROUBLES, max_size=30), st.floats(0, 1))
def test_a_success_closes_it_unless_credentials_are_wrong_and_it_survives_being_stored(history, chance):
    breaker, now = Breaker(), NOW
    for trouble in history:
        breaker = next_breaker(breaker, trouble, now, chance)
        assert Breaker.from_dict(breaker.to_dict()) == breaker
        assert breaker.kind == "" or (breaker.probe_at or 0) >= now
        now += SECOND_US
    last = next_breaker(breaker, None, now, chance)
    assert last == (breaker if breaker.kind == "AUTH" else Breaker())
