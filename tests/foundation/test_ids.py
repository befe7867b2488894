"""Ids: many are looked at together, and judged as each would be alone."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from kesin.foundation.ids import all_ids, is_id

GOOD = st.uuids().map(str)
NEARLY = st.builds(
    lambda text, place, sign: text[:place] + sign + text[place + 1 :],
    GOOD,
    st.integers(0, 35),
    st.one_of(st.sampled_from("-0aAgf\x00é\ud800"), st.characters()),
)
BAD = st.one_of(st.text(max_size=80), GOOD.map(str.upper), GOOD.map(lambda text: text + text))


@given(st.lists(st.one_of(GOOD, NEARLY, BAD), max_size=6))
@example(["", "0" * 36])
@example(["a" * 72, ""])
@example(["0190c5a2-0000-7000-8000-00000000000a 0190c5a2-0000-7000-8000-00000000000b"])
@example([7])
@example([None])
def test_together_they_are_judged_as_each_alone(texts):
    assert all_ids(texts) == all(map(is_id, texts))


def test_a_hyphen_may_not_wander_between_neighbours():
    """Both have 36 signs, and together as many hyphens as two ids."""
    id_ = "0190c5a2-0000-7000-8000-00000000000a"
    assert all_ids([id_, id_])
    assert not all_ids([id_.replace("-", "0", 1), "-" + id_[1:]])
