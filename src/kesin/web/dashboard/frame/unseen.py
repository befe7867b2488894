"""Failures that a user has not seen yet: opening a queue's page marks them as seen.

A failed job stays in the store for a year and is counted as long as it needs a person. The badge is
loud only for what failed since the user last opened the queue.
"""

import json
from collections.abc import Mapping
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json
from kesin.store.directory import MetadataEntry
from kesin.store.records import QueueStats
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.state_groups import states_in

WORKLOAD: Final = "dashboard_seen"  # a stored name
Marks = Mapping[str, int]  # queue → when its page was last opened


def read_marks(ctx: PageContext) -> Marks:
    """The user's marks; one read for all queues."""
    entry = ctx.accounts.directory.metadata_entry(WORKLOAD, "", ctx.actor.name)
    return (json.loads(entry.value) or {}) if entry else {}


def mark_seen(ctx: PageContext, queue: Queue, now: int) -> None:
    """Mark all failures of a queue so far as seen by this user."""
    directory, name = ctx.accounts.directory, ctx.actor.name
    with directory.transaction():
        marks = json.loads(directory.lock_metadata(WORKLOAD, "", name, now).value) or {}
        value = canonical_json(marks | {queue.name: now})
        directory.put_metadata(MetadataEntry(WORKLOAD, "", name, value, now))


def needing_attention(
    ctx: PageContext, queue: Queue, stats: QueueStats, marks: Marks
) -> tuple[int, bool]:
    """How many jobs need a person or are stuck, and whether some are new to this user."""
    visible = ctx.commands.visible_sites(ctx.actor, queue.name)
    failures = ctx.service.failures.of(queue, stats, visible)
    seen_at, held = marks.get(queue.name, -1), states_in(queue.lifecycle, "person")
    new = any(group.latest > seen_at or group.state in held for group in failures.needing)
    return failures.needs_you + stats.lease_over, new or stats.lease_over > 0
