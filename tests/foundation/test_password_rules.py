"""Passwords that are guessed first are refused; any other may be chosen."""

from __future__ import annotations

import pytest

from kesin.foundation.passwords import check_password, one_time_password
from kesin.foundation.problems import Invalid
from tests.tables import table

EASY = {
    "repeats": "aaaaaaaaaa 1111111111 ababababab abcabcabcabc passwordpassword xK9pL-xK9pL-",
    "simple sequence": (
        "1234567890 0987654321 abcdefghij ABCDEFGHIJ qwertyuiop asdfghjkl1 abcde12345 "
        "1qaz2wsx3edc 1q2w3e4r5t6y 12345678901 aabbccddee 123456789012345"
    ),
    "little more": "ayse.yilmaz1 ayse.yilmaz-2026 AYSE.YILMAZ!! 99ayse.yilmaz",
    "most common": ("password123 Password2026! qwerty-987-! welcome#2468 Parola-1453 galatasaray1905"),
}
GOOD = (
    "correct-horse-battery kahve4fincan-dolu X7!mQ2#vLp9 tr0ub4dor&3xyz 8f14e45fceea167a "
    "ayse.yilmaz-drinks-tea californian-sunsets 19051923wahrheit"
)


@table(("word", "password"), [(word, one) for word, all_ in EASY.items() for one in all_.split()])
def test_a_password_that_is_guessed_first_is_refused_with_the_reason(word, password):
    with pytest.raises(Invalid, match=word) as refused:
        check_password(password, "ayse.yilmaz")
    assert (refused.value.code, refused.value.details) == ("easy_password", {"field": "password"})
    assert password not in str(refused.value)


@pytest.mark.parametrize("password", GOOD.split())
def test_a_password_that_is_hard_to_guess_may_be_chosen(password):
    check_password(password, "ayse.yilmaz")


@pytest.mark.parametrize("name", ["", "ali", "a"])
def test_a_short_name_may_stand_inside_a_longer_word(name):
    check_password("californian-sunsets", name)


def test_the_passwords_that_are_made_here_may_be_chosen():
    for _ in range(200):
        check_password(one_time_password(), "admin")
