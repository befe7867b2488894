"""Guards, durations and timers read as people write them."""

from kesin.lifecycle.errors import Category
from kesin.lifecycle.vocabulary import (
    After,
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
from tests.tables import table


@table(
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
)
def test_a_guard_reads_as_it_is_written(guard, shown):
    assert str(guard) == shown


def test_a_duration_is_told_in_the_largest_unit_that_stays_whole():
    shown = {0: "0 s", 59: "59 s", 60: "1 min", 5_400: "90 min", 7_200: "2 h", 172_800: "2 d"}
    assert {seconds: duration(seconds) for seconds in shown} == shown
    assert str(After(1_200)) == "after 20 min"
