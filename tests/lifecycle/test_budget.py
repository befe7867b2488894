import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kesin.foundation.ids import salt_of
from kesin.lifecycle.budget import (
    DAY_S,
    JITTER_MULTIPLIER,
    JITTER_STEP,
    MAX_DELAY_S,
    MAX_JITTER_S,
    SECOND_US,
    Backoff,
    doubling,
)

SALT_LIMIT = salt_of("f" * 32) + 1  # no job has a larger salt
SALTS = st.integers(0, SALT_LIMIT - 1)
TRIES = st.integers(0, 10_000)
LARGEST = 2**63 - 1  # of an INTEGER or bigint column


def jitter_us(jitter_s, tries, salt):
    return Backoff((0,), jitter_s=jitter_s).delay_us(tries, salt)


def some_salts(count):
    chance = random.Random(20_26)
    return [chance.randrange(SALT_LIMIT) for _ in range(count)]


@pytest.mark.parametrize(("tries", "seconds"), [(0, 0), (1, 5), (2, 30), (3, 30), (100, 30), (-1, 0)])
def test_each_try_waits_its_own_delay_and_the_last_repeats(tries, seconds):
    assert Backoff((0, 5, 30)).delay_us(tries, salt=7) == seconds * SECOND_US


def test_doubling_writes_the_schedule_out_until_it_stops_growing_and_refuses_what_cannot_grow():
    assert doubling(300, 3_000).delays_s == (300, 600, 1_200, 2_400, 3_000)
    for first, longest in ((0, 10), (-5, 10), (11, 10)):
        with pytest.raises(ValueError, match=rf"got {first} and {longest}$"):
            doubling(first, longest)


def test_delays_and_jitter_out_of_range_are_refused_with_their_value():
    with pytest.raises(ValueError, match="at least one delay, got none"):
        Backoff(())
    for delay in (-1, MAX_DELAY_S + 1):
        with pytest.raises(ValueError, match=rf"a delay must be in 0…{MAX_DELAY_S} s, got {delay}$"):
            Backoff((1, delay))
    for jitter in (-1, DAY_S + 1):
        with pytest.raises(ValueError, match=rf"jitter_s must be in 0…\d+, got {jitter}$"):
            Backoff((1,), jitter_s=jitter)


@given(salt=SALTS, tries=TRIES, jitter_s=st.integers(1, 3_600))
def test_jitter_lies_between_nothing_and_jitter_s_and_is_added_to_the_delay(salt, tries, jitter_s):
    jitter = jitter_us(jitter_s, tries, salt)
    assert 0 <= jitter <= jitter_s * SECOND_US
    assert Backoff((9,), jitter_s=jitter_s).delay_us(tries, salt) == 9 * SECOND_US + jitter


@pytest.mark.parametrize(
    ("salt", "tries", "expected"),
    [(0, 0, 0), (1, 0, 14_435_717), (2_147_483_647, 0, 8_015_120), (12_345, 3, 4_089_825)],
)
def test_jitter_is_the_same_number_everywhere(salt, tries, expected):
    assert jitter_us(60, tries, salt) == expected


def test_jitter_spreads_jobs_evenly_over_its_range():
    tenths = Counter(jitter_us(60, 0, salt) * 10 // (60 * SECOND_US + 1) for salt in some_salts(10_000))
    assert sorted(tenths) == list(range(10))
    assert all(800 < count < 1_200 for count in tenths.values())


@given(salt=SALTS, tries=TRIES)
def test_the_next_try_of_a_job_draws_another_jitter(salt, tries):
    assert jitter_us(60, tries, salt) != jitter_us(60, tries + 1, salt)


@pytest.mark.parametrize("jitter_s", [1, 60, 3_600, MAX_JITTER_S])
def test_jitter_reaches_the_far_end_of_every_range_that_is_accepted(jitter_s):
    backoff = Backoff((0,), jitter_s=jitter_s)
    farthest = max(backoff.delay_us(0, salt) for salt in some_salts(2_000))
    assert farthest > 0.9 * jitter_s * SECOND_US


def test_the_product_behind_the_jitter_and_the_latest_wake_up_of_this_century_fit_a_database_integer():
    most_tries = 2**31
    assert (SALT_LIMIT - 1) * JITTER_MULTIPLIER + most_tries * JITTER_STEP <= LARGEST
    year_2100 = 4_102_444_800 * SECOND_US
    latest = Backoff((MAX_DELAY_S,), jitter_s=MAX_JITTER_S).delay_us(0, SALT_LIMIT - 1)
    assert year_2100 + latest <= LARGEST


def test_a_backoff_reads_as_a_sentence():
    assert str(Backoff((0, 5), counts="retries")) == "backoff(0, 5 s by retries)"
    assert str(Backoff((300,), jitter_s=60)) == "backoff(300 + 0…60 s by attempts)"
