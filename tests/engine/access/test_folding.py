"""Looks that found nothing new are one line; everything else keeps its own."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kesin.engine.access.companions import fold_events
from kesin.store.records import Event

_NOTHING: dict[str, Any] = dict.fromkeys(Event._fields)
CLAIM = Event(**_NOTHING | {"move": "claim", "from_state": "s", "to_state": "s", "actor": "w1", "worker": "w1"})
WAIT = CLAIM._replace(move="wait", worker=None)
BLOCK = WAIT._replace(move="block", error_code="E_AWAY", error_message="the folder is away")
EVENTS = st.sampled_from(
    [
        CLAIM,
        CLAIM._replace(error_code="E_AWAY"),
        WAIT,
        BLOCK,
        BLOCK._replace(error_message="it is full"),
        WAIT._replace(move="go", to_state="t"),
        WAIT._replace(flags=1),
        WAIT._replace(move="hint", actor="user:ayse"),
    ]
)


def history(*events: Event) -> list[Event]:
    return [event._replace(seq=at, at=at) for at, event in enumerate(events)]


def shown(events: list[Event]) -> list[tuple[str, int]]:
    return [(line.event.move, line.count) for line in fold_events(events)]


def test_repeats_join_the_first_although_its_claim_had_no_error_yet():
    failing = CLAIM._replace(error_code="E_AWAY")
    events = history(CLAIM, BLOCK, failing, BLOCK, failing, BLOCK, failing)
    assert shown(events) == [("claim", 1), ("block", 3), ("claim", 1)]
    line = fold_events(events)[1]
    assert (line.since, line.event) == (1, events[5])


def test_other_reasons_other_people_and_changed_states_stay():
    full = BLOCK._replace(error_message="it is full")
    hint = WAIT._replace(actor="user:ayse")
    for end in (full, hint, WAIT, BLOCK._replace(flags=1), BLOCK._replace(to_state="t")):
        assert len(shown(history(CLAIM, BLOCK, CLAIM, end))) == 4, end


@given(st.lists(EVENTS, max_size=12))
def test_every_event_is_in_one_line_and_a_line_repeats_its_first_event(drawn):
    events = history(*drawn)
    lines = fold_events(events)
    assert [event for line in lines for event in reversed(line.events)] == events
    assert [line.event.seq for line in lines] == sorted({line.event.seq for line in lines})
    for line in lines:
        first = next(event for event in events if event.at == line.since)
        assert first._replace(seq=0, at=0) == line.event._replace(seq=0, at=0)
        assert [event._replace(seq=0, at=0) for event in line.events].count(
            line.event._replace(seq=0, at=0)
        ) == line.count


def test_retries_are_one_line_too_unless_their_messages_differ():
    fail = WAIT._replace(move="fail", to_state="r", error_code="E", error_message="slow")
    requeue = WAIT._replace(move="requeue", from_state="r", error_code="E", error_message="slow")
    events = history(CLAIM, *(fail, requeue, CLAIM) * 3)
    assert shown(events) == [("claim", 1), ("fail", 1), ("requeue", 3), ("claim", 1)]
    events[4] = events[4]._replace(error_message="slower")
    assert len(shown(events)) > 4
    assert len(fold_events(events, messages=False)) == 4
