"""A message is its English text, and keeps the id and the values for other languages."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from kesin.foundation.messages import (
    Message,
    decode_note,
    join_messages,
    note_json,
    parts_of,
    recorded_message,
    restore,
    shorten,
)
from kesin.foundation.text import canonical_json
from tests.tables import table

NO_SITE = Message("there is no site %(site)s", site="'x'")
NESTED = Message("%(field)s: %(problem)s", field="a.b", problem=NO_SITE)


def same(message: str, other: Message) -> bool:
    return isinstance(message, Message) and message.to_json() == other.to_json()


def test_a_message_is_its_text():
    assert NESTED == "a.b: there is no site 'x'"
    assert json.loads(json.dumps({"message": NESTED})) == {"message": str(NESTED)}
    assert (NESTED.id, NESTED.values["field"]) == ("%(field)s: %(problem)s", "a.b")
    assert Message("50 % of it") == "50 % of it"
    assert Message("%(n)s %% of it", n=50) == "50 % of it"


def test_a_missing_or_surplus_value_is_refused_and_fill_takes_only_those_with_a_place():
    for sentence, values in (("no %(site)s", {"job": 1}), ("no %(site)s", {"site": 1, "job": 1}), ("no", {"job": 1})):
        with pytest.raises(ValueError, match="has placeholders other than"):
            Message(sentence, **values)
    assert same(Message.fill(NO_SITE.id, {"site": "'x'", "job": 1}), NO_SITE)
    with pytest.raises(KeyError):
        Message.fill(NO_SITE.id, {"job": 1})


def test_a_copy_an_exception_and_pickling_keep_id_and_values():
    for copied in (copy.copy, copy.deepcopy, Message):
        assert same(copied(NESTED), NESTED)
    assert same(str(ValueError(NESTED)), NESTED)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert same(pickle.loads(pickle.dumps(NESTED, protocol)), NESTED)


def test_joined_messages_stay_messages():
    joined = join_messages(["is missing", NO_SITE, "x"])
    assert joined == "is missing; there is no site 'x'; x"
    assert same(joined.values["first"], join_messages(["is missing", NO_SITE]))
    assert same(join_messages([NO_SITE]), NO_SITE)


def test_only_a_longer_text_is_cut():
    assert same(shorten(NO_SITE, len(NO_SITE)), NO_SITE)
    assert shorten(NO_SITE, 8) == "there is"


def test_a_record_keeps_the_parts_beside_the_text():
    record = json.loads(json.dumps({"code": "x", **parts_of(NESTED)}))
    assert same(restore(str(NESTED), record), NESTED)
    assert parts_of("plain") == parts_of(Message("plain")) == parts_of(None) == {}
    assert parts_of(Message("%(text)s", text="x" * 1_001)) == {}


@table(
    "record",
    [
        None, [], "text", {}, {"message_parts": None}, {"message_parts": {}},
        {"message_parts": {"id": "no %(site)s", "values": {"job": "1"}}},
        {"message_parts": {"id": "no %(site)s", "values": {"site": 1}}},
        {"message_parts": {"id": "no %(site)s", "values": 7}},
        {"message_parts": {"id": "no %(site)s and 5 %", "values": {"site": "x"}}},
        parts_of(NO_SITE),
    ],
)  # fmt: skip
def test_without_fitting_parts_a_text_stays_plain(record):
    """Records of older versions have none, and a note may be of a later move."""
    text = restore("another text", record)
    assert text == "another text"
    assert not isinstance(text, Message)


def test_a_note_carries_the_parts_and_shows_the_rest():
    note = note_json(NESTED, {"file": "a.xml"})
    assert same(recorded_message(str(NESTED), note), NESTED)
    assert decode_note(note) == {"file": "a.xml"}
    assert decode_note(note_json(NESTED)) is None
    assert note_json("plain", {"file": "a.xml"}) == canonical_json({"file": "a.xml"})
    assert note_json("plain") is note_json(None) is None
    assert recorded_message(None, None) == ""
    assert decode_note("no JSON") == "no JSON"
