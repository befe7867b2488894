"""Drawings of lifecycles with slots, a rate and jobs that come after others."""

from __future__ import annotations

import pytest

from kesin.lifecycle.declare import State
from kesin.lifecycle.drawing.layout import lay_out
from kesin.lifecycle.drawing.shape import family, marks
from kesin.lifecycle.drawing.svg import svg
from kesin.lifecycle.drawing.table import markdown, mermaid
from kesin.lifecycle.task import task_lifecycle
from kesin.lifecycle.vocabulary import GONE

LIMITED = task_lifecycle(concurrency=3, per="tenant", rate=(100, 60), parents=True)


@pytest.mark.parametrize(
    ("state", "mark"),
    [
        (State("s", slots=3), "3 slots per queue"),
        (State("s", slots=1), "1 slot per queue"),
        (State("s", slots=3, slots_per="tenant"), "3 slots per tenant"),
        (State("s", slots=1, slots_per="tenant"), "1 slot per tenant"),
        (State("s", exclusive=True), "exclusive"),
    ],
)
def test_a_state_says_how_many_jobs_it_takes(state, mark):
    assert marks(state) == tuple(sorted(("working", mark), key=lambda one: one != "working"))


def test_tables_pictures_and_diagrams_name_slots():
    assert "| `running` | working, holds key, 3 slots per tenant |" in markdown(LIMITED)
    assert 'state "running (3 slots per tenant)" as running' in mermaid(LIMITED)
    assert "3 slots per tenant" in svg(LIMITED)
    turkish = {"%(n)s slots per tenant": "her sitede %(n)s yer"}
    assert "her sitede 3 yer" in svg(LIMITED, translate=lambda text: turkish.get(text, text))


def test_a_claim_says_what_limits_it():
    [claim] = [line for line in markdown(LIMITED).splitlines() if line.startswith("| `claim`")]
    assert "at most 100 per tenant in 1 min, a slot of running is free" in claim


def test_what_waits_for_other_jobs_is_drawn_as_waiting():
    assert family(LIMITED, "blocked") == "waiting"
    assert "class failed resting" in mermaid(LIMITED)


def test_both_ways_in_are_drawn():
    ways = {edge.edge.to: edge for edge in lay_out(LIMITED).edges if edge.edge.source == GONE}
    assert ways.keys() == {"ready", "blocked"}
    boxes = {box.cell.name: box for box in lay_out(LIMITED).boxes}
    for name, way in ways.items():
        (x, top), (_, bottom) = way.points
        assert boxes[name].x < x < boxes[name].x + boxes[name].width
        assert top < bottom == boxes[name].y
