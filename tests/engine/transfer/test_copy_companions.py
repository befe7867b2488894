"""Copies of what stands beside a job: its slot, and the jobs it comes after."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import pytest

from kesin import Move, Queue, State, task_lifecycle, unclaimed
from kesin.engine.transfer.copy import copy_queues
from kesin.engine.transfer.queue_copy import CopyRefused, NamedStore
from tests.store.conftest import opened

PLAIN = task_lifecycle("parked", parents=True)
LIFECYCLE = replace(
    PLAIN,
    states=(*PLAIN.states, State("parked", slots=2, holds_key=True)),
    moves=(
        *PLAIN.moves,
        Move("park", ("ready",), "parked", by=("operator",), when=(unclaimed,)),
        Move("drive", ("parked",), "ready", by=("clock", "operator"), when=(unclaimed,), run_at="now", stage="timeout"),
    ),
)


@pytest.fixture
def stores(request: pytest.FixtureRequest):
    with ExitStack() as stack:
        yield lambda kind: NamedStore(stack.enter_context(opened(kind, request)), kind)


@pytest.mark.parametrize(
    ("source", "target"), [("sqlite-file", "postgres"), ("postgres", "redis"), ("redis", "sqlite-file")]
)
def test_slots_and_parents_are_the_same_in_the_copy(stores, source, target):
    there, here = stores(source), stores(target)
    queue = Queue("parked", LIFECYCLE, there.store)
    first, second, third, parent = (queue.enqueue({"n": n}).id for n in range(4))
    child = queue.enqueue({}, after=[parent]).id
    queue.act("park", ids=[first, second], actor="op")
    with pytest.raises(CopyRefused, match="jobs of parked that wait for others, or that others wait for: 1"):
        copy_queues(there, here, {"parked": LIFECYCLE})
    [job] = queue.claim("w", ids=[parent])
    queue.move(job, "complete")
    assert queue.settle() == 1
    [result] = copy_queues(there, here, {"parked": LIFECYCLE})
    assert result.jobs == 5
    copied = Queue("parked", LIFECYCLE, here.store)
    assert [job.id for job in copied.parents(child)] == [parent]
    assert [job.id for job in copied.children(parent)] == [child]
    assert copied.act("park", ids=[third], actor="op").refused == {"busy": 1}
    assert copied.act("drive", ids=[second], actor="op").moved == 1
    assert copied.act("park", ids=[third], actor="op").moved == 1
    assert copied.act("park", ids=[second], actor="op").refused == {"busy": 1}
