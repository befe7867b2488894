"""Failures that a user has not seen yet: opening a queue's page marks them as seen.

A failed job stays in the store for a year and is counted as long as it needs a person. The badge is
loud only for what failed since the user last opened the queue.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from kesin.engine.queue import Queue
from kesin.foundation.text import canonical_json
from kesin.store.directory import MetadataEntry
from kesin.store.records import QueueStats
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.state_groups import failed_states, hold_states

WORKLOAD: Final = "dashboard_looked"  # a stored name
Marks = Mapping[str, int]  # queue → how many moves had ended badly when its page was last opened


def read_marks(ctx: PageContext) -> Marks:
    """The user's marks; one read for all queues."""
    fact = ctx.service.accounts.directory.metadata_entry(WORKLOAD, "", ctx.actor.name)
    return (json.loads(fact.value) or {}) if fact else {}


def mark_seen(ctx: PageContext, queue: Queue) -> None:
    """Mark all failures of a queue so far as seen by this user."""
    failures = _failures(ctx, queue)
    if read_marks(ctx).get(queue.name, 0) == failures:
        return
    directory, name, now = ctx.service.accounts.directory, ctx.actor.name, queue.now()
    with directory.transaction():
        marks = json.loads(directory.lock_metadata(WORKLOAD, "", name, now).value) or {}
        value = canonical_json(marks | {queue.name: failures})
        directory.put_metadata(MetadataEntry(WORKLOAD, "", name, value, now))


def needing_attention(
    ctx: PageContext, queue: Queue, stats: QueueStats, marks: Marks
) -> tuple[int, bool]:
    """How many jobs need a person or are stuck, and whether some failed since the last visit."""
    visible = ctx.service.commands.visible_sites(ctx.actor, queue.name)
    failures = ctx.service.failures.of(queue, stats, visible)
    held = any(group.state in hold_states(queue.lifecycle) for group in failures.needing)
    unseen = _failures(ctx, queue) > marks.get(queue.name, 0)
    badge = failures.needs_you + stats.lease_over
    return badge, badge > 0 and (unseen or held or stats.lease_over > 0)


def _failures(ctx: PageContext, queue: Queue) -> int:
    """How many moves ever ended badly, among the jobs that the user may see."""
    tenants = ctx.service.commands.visible_sites(ctx.actor, queue.name)
    bad = failed_states(queue.lifecycle)
    return sum(
        count.n
        for count in queue.store.move_counts(queue.name)
        if count.to_state in bad
        and count.from_state != count.to_state
        and (tenants is None or count.tenant in tenants)
    )
