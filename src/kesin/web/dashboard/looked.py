"""What a person has not looked at yet: each queue's page notes that they were there.

A failed job stays in the store for a year. What calls for somebody is what failed since they last
opened the queue, so one old failure does not keep a badge red for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json
from kesin.store.directory import Fact
from kesin.store.records import QueueStats
from kesin.web.dashboard.families import ended_badly, waits_for_person

if TYPE_CHECKING:
    from kesin.web.dashboard.view import Looker

WORKLOAD: Final = "dashboard_looked"
Marks = Mapping[str, int]  # queue → how many moves had ever ended badly when it was last opened


def marks_of(looking: Looker) -> Marks:
    """Where somebody has been; one read for all queues."""
    found = looking.service.accounts.directory.fact(WORKLOAD, "", looking.actor.name)
    return (json.loads(found.value) or {}) if found else {}


def mark(looking: Looker, queue: Queue) -> None:
    """Somebody opened the queue's page: what failed until now has been looked at."""
    failures = _failures(looking, queue)
    if marks_of(looking).get(queue.name, 0) == failures:
        return
    directory, name, now = looking.service.accounts.directory, looking.actor.name, queue.now()
    with directory.transaction():
        held = json.loads(directory.hold_fact(WORKLOAD, "", name, now).value) or {}
        value = canonical_json(held | {queue.name: failures})
        directory.put_fact(Fact(WORKLOAD, "", name, value, now))


def wanting(looking: Looker, queue: Queue, stats: QueueStats, marks: Marks) -> int:
    """How many jobs need a person: on hold, failed and not looked at, or stuck."""
    on_hold = sum(stats.states.get(one, 0) for one in waits_for_person(queue.lifecycle))
    failed = sum(stats.states.get(one, 0) for one in ended_badly(queue.lifecycle))
    if failed:
        since = _failures(looking, queue) - marks.get(queue.name, 0)
        failed = min(failed, max(since, 0))
    return on_hold + failed + stats.lease_over


def _failures(looking: Looker, queue: Queue) -> int:
    """How many moves ever ended badly, among the rows the looker may see."""
    seen = looking.service.commands.visible(looking.actor, queue.name)
    bad = ended_badly(queue.lifecycle)
    return sum(
        flow.n
        for flow in queue.store.flows(queue.name)
        if flow.to_state in bad
        and flow.from_state != flow.to_state
        and (seen is None or flow.tenant in seen)
    )
