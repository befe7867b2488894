"""Lifecycles as text: nothing that matters is lost, and what is not understood is refused."""

import json
from dataclasses import replace

import pytest

from kesin.lifecycle.codec import lifecycle_from_json, lifecycle_json, rules_fingerprint
from kesin.lifecycle.vocabulary import DeclarationError
from kesin.workloads import lifecycles
from tests.engine.simulation.random_lifecycle import random_lifecycle
from tests.lifecycle.small import small, with_state
from tests.store.every_word import every_word
from tests.store.model.lifecycles import ferry_lifecycle
from tests.tables import table

DRAWN = 4


def without_docs(lifecycle):
    moves = tuple(replace(move, doc="") for move in lifecycle.moves)
    return replace(lifecycle, doc="", moves=moves)


def survives(lifecycle):
    text = lifecycle_json(lifecycle)
    decoded = lifecycle_from_json(text)
    return (
        decoded == without_docs(lifecycle)
        and lifecycle_json(decoded) == text
        and rules_fingerprint(decoded) == rules_fingerprint(lifecycle)
    )


def test_every_lifecycle_survives():
    """The shipped ones, with every word, and at random."""
    special = (every_word(), ferry_lifecycle(), small(states=with_state(resting=True, retiring=True)))
    for lifecycle in (*(make() for make in lifecycles().values()), *special, *map(random_lifecycle, range(DRAWN))):
        assert survives(lifecycle), lifecycle.name


def test_declarations_that_differ_have_different_fingerprints():
    plain = small()
    others = [
        small(max_attempts=plain.max_attempts + 1),
        small(name="other"),
        small(flags=("a", "b")),
        small(flags=("b", "a")),
        small(states=with_state(resting=True)),
        small(states=with_state(resting=True, retiring=True)),
        replace(plain, moves=plain.moves[::-1]),
        *(lifecycle() for lifecycle in lifecycles().values()),
    ]
    fingerprints = {rules_fingerprint(lifecycle) for lifecycle in (plain, *others)}
    assert len(fingerprints) == len(others) + 1
    moves = tuple(replace(move, doc="said otherwise") for move in plain.moves)
    assert rules_fingerprint(replace(plain, doc="another text", moves=moves)) in fingerprints, "but for the words"


def test_what_has_its_default_is_left_out_so_that_new_words_change_no_fingerprint():
    encoded = json.loads(lifecycle_json(small()))
    assert "stamps" not in encoded
    assert {"is": "State", "name": "running"} in encoded["states"]


@table(
    ("word", "other"),
    [
        ('"is":"State"', '"is":"Place"'),
        ('"name":"running"', '"name":"running","colour":"red"'),
        ('"is":"State","name"', '"name"'),
        ('"value":"PERMANENT"', '"value":"SELDOM"'),
        ('"to":"running"', '"to":"nowhere"'),
        ('"kind":"lease_over"', '"kind":"moon_full"'),
        ('{"is":"Lifecycle"', '[{"is":"Lifecycle"'),
    ],
)
def test_unknown_words_are_refused(word, other):
    text = lifecycle_json(small())
    assert word in text
    with pytest.raises(DeclarationError):
        lifecycle_from_json(text.replace(word, other))


@table("text", ["", "null", "[]", "7", '"task"', '{"is":"State","name":"a"}'])
def test_what_is_no_lifecycle_is_refused(text):
    with pytest.raises(DeclarationError):
        lifecycle_from_json(text)
