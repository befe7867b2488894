"""The engine's values as response bodies."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from kesin.engine.access.commands import MAX_BULK_JOBS, JobDetails
from kesin.engine.access.companions import Companions, FoldedEvents, fold_events
from kesin.engine.bulk import ActionPreview, BulkResult
from kesin.engine.queue import Queue
from kesin.foundation.clock import iso
from kesin.foundation.messages import decode_note, recorded_traceback
from kesin.foundation.text import decode_json, is_deeper_than
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Job
from kesin.store.counters import slots_in_use
from kesin.store.records import Note, QueueStats
from kesin.web import schemas

MAX_JSON_DEPTH: Final = 100  # deeper values fail to be written as JSON
_ERROR: Final = ("error_code", "error_category", "error_message")
_SAME: Final = ("id", "queue", "priority", "state", "worker", "attempts_left", *_ERROR)
_TIMES: Final = ("created_at", "moved_at", "timer_at", "lease_until", "finished_at")


def json_depth_limited(value: Any) -> Any:
    """The value, or its JSON as one string if it is nested too deeply to be written."""
    if not is_deeper_than(value, MAX_JSON_DEPTH):
        return value
    return json.dumps(value, ensure_ascii=False)


def job_body(job: Job, title: str = "") -> schemas.JobBody:
    same: dict[str, Any] = {name: getattr(job, name) for name in _SAME}
    times: dict[str, Any] = {name: iso(getattr(job, name)) for name in _TIMES}
    return schemas.JobBody.model_construct(  # our own values: validating fifty costs a millisecond
        **same,
        **times,
        site=job.tenant,
        title=title or None,
        key=job.dedup_key,
        once=bool(job.once),
        claimed=job.worker is not None,
        attempts=job.attempt_count,
        retries=job.retry_count,
        due_at=iso(job.run_at),
    )


def event_body(folded: FoldedEvents) -> schemas.EventBody:
    event = folded.event
    decoded = {
        "at": iso(event.at),
        "note": decode_note(event.note),
        "traceback": recorded_traceback(event.note) or None,
        "count": folded.count,
        "since": iso(folded.since),
    }
    return schemas.EventBody(**event._asdict() | decoded)


def whole_body(
    history: JobDetails,
    beside: Companions,
    advice: Mapping[str, Any] | None = None,
    *,
    title_of: Callable[[Job], str],
    fold: bool = True,
) -> schemas.JobWhole:
    events, parents, children = history.events, beside.parents, beside.children
    said = beside.progress
    shown = fold_events(events) if fold else [FoldedEvents([event]) for event in events]
    return schemas.JobWhole(
        job=job_body(history.job, title_of(history.job)),
        progress=schemas.ProgressBody(**said._asdict() | {"at": iso(said.at)}) if said else None,
        parents=[_relative_body(job) for job in parents.jobs],
        more_parents=parents.more,
        hidden_parents=parents.hidden,
        children=[_relative_body(job) for job in children.jobs],
        more_children=children.more,
        hidden_children=children.hidden,
        payload=json_depth_limited(history.job.payload),
        result=json_depth_limited(history.job.result),
        events=[event_body(event) for event in shown],
        notes=[_note_body(note) for note in history.notes],
        actions=list(history.actions),
        advice=dict(advice) if advice else None,
    )


def _relative_body(job: Job) -> schemas.RelativeBody:
    return schemas.RelativeBody(id=job.id, queue=job.queue, state=job.state)


def _note_body(note: Note) -> schemas.NoteBody:
    decoded = {"at": iso(note.at), "details": decode_json(note.details)}
    return schemas.NoteBody(**note._asdict() | decoded)


def stats_body(stats: QueueStats, lifecycle: Lifecycle) -> schemas.Stats:
    rate = lifecycle.claims[0].guard("rate")
    slots = [
        schemas.SlotsBody(
            state=use.state,
            slots=use.slots,
            per="tenant" if use.per_tenant else "queue",
            used=use.used,
            fullest=[schemas.SiteSlotsBody(site=site, used=n) for site, n in use.fullest],
            more_sites=use.tenants - len(use.fullest),
        )
        for use in slots_in_use(lifecycle, stats)
    ]
    rate_body = schemas.RateBody(jobs=rate.number, per_s=rate.per_s) if rate else None
    return schemas.Stats(
        queue=stats.queue,
        now=iso(stats.now) or "",
        total=stats.total,
        states=stats.states,
        sites=stats.tenants,
        oldest_due_at=iso(stats.oldest_due_at),
        lease_over=stats.lease_over,
        limits=schemas.LimitsBody(slots=slots, rate=rate_body),
    )


def action_body(bulk: BulkResult, *, most: int | None) -> schemas.ActionResultBody:
    outcomes = [row._asdict() | {"reason": row.reason or None} for row in bulk.outcomes[:most]]
    return schemas.ActionResultBody(
        dry_run=False,
        matched=len(bulk.outcomes),
        moved=bulk.moved,
        already=bulk.already,
        refused=bulk.refused,
        outcomes=[schemas.OutcomeBody(**outcome) for outcome in outcomes],
    )


def preview_body(chosen: ActionPreview) -> schemas.ActionResultBody:
    return schemas.ActionResultBody(
        dry_run=True,
        matched=chosen.matched,
        moved=chosen.would_move,
        already=chosen.by_reason.get("already", 0),
        refused={why: n for why, n in chosen.by_reason.items() if why != "already"},
        by_state=chosen.by_state,
        more=chosen.matched > MAX_BULK_JOBS,
        outcomes=[],
    )


def states_of(queue: Queue) -> list[schemas.StateBody]:
    states = queue.lifecycle.states
    return [schemas.StateBody(**asdict(state) | {"slots": state.capacity}) for state in states]
