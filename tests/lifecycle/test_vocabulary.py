"""Guards, durations and timers read as people write them."""

import pytest

from kesin.lifecycle.errors import Category
from kesin.lifecycle.vocabulary import (
    After,
    Guard,
    age_over,
    category_in,
    code_in,
    code_not_in,
    due,
    duration,
    flag_set,
    option,
    retries_left,
    slot_free,
    timer_over,
)


@pytest.mark.parametrize(
    ("guard", "shown"),
    [
        (due, "due"),
        (timer_over, "timer_over"),
        (code_in("A", "B"), "code_in(A, B)"),
        (code_not_in("A"), "code_not_in(A)"),
        (category_in(Category.AUTH), "category_in(AUTH)"),
        (flag_set("vip"), "flag_set(vip)"),
        (slot_free("running"), "slot_free(running)"),
        (retries_left(3), "retries_left(< 3)"),
        (age_over("created_at", 86_400), "age_over(created_at, 1 d)"),
        (option("hard", is_set=True), "option(hard=yes)"),
        (option("hard", is_set=False), "option(hard=no)"),
    ],
    ids=lambda value: value.kind if isinstance(value, Guard) else None,
)
def test_a_guard_reads_as_it_is_written(guard, shown):
    assert str(guard) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (59, "59 s"), (60, "1 min"), (5_400, "90 min"), (7_200, "2 h"), (172_800, "2 d")]
)
def test_a_duration_is_told_in_the_largest_unit_that_stays_whole(seconds, shown):
    assert duration(seconds) == shown


def test_a_timer_says_when_it_goes_off():
    assert str(After(1_200)) == "after 20 min"
