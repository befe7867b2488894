"""`kesin jobs list` and `kesin jobs show`: pages of jobs, and a job with its whole history."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kesin.cli.commands.act import act
from kesin.cli.support import arguments
from kesin.cli.support.arguments import argument, option
from kesin.cli.support.context import open_context
from kesin.cli.support.errors import CommandError, UsageError
from kesin.cli.support.records import (
    PHASES,
    event_record,
    flag_names,
    job_record,
    note_record,
    stamps,
)
from kesin.engine.access.folding import FoldedEvent, fold_events
from kesin.foundation.ids import is_id
from kesin.foundation.messages import decode_note, recorded_traceback
from kesin.foundation.terminal import format_time, print_table, say, say_json, visible_lines
from kesin.foundation.text import canonical_json, decode_json
from kesin.lifecycle.model import Job
from kesin.store.records import Definition, Event, Note

MAX_JOBS = 1_000
MESSAGE_WIDTH = 80

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_jobs(
    queue: arguments.QueueName,
    *,
    state: arguments.States = None,
    tenant: arguments.Tenants = None,
    code: arguments.Codes = None,
    category: arguments.Categories = None,
    text: arguments.TextPart = None,
    key: arguments.Key = None,
    limit: Annotated[int, option("N", "Jobs on the page.", min=1, max=MAX_JOBS)] = 50,
    cursor: Annotated[
        str | None, option("ID", "Go on after the page that ended with this.")
    ] = None,
    as_json: arguments.AsJson = False,
) -> None:
    """List jobs, newest first."""
    if cursor is not None and not is_id(cursor):
        raise UsageError(f"{cursor!r} is no cursor: take it from the page before")
    filters = arguments.FilterOptions(state, tenant, code, category, text, key)
    with open_context() as context:
        name = context.readable_queue(queue)
        names = context.store.definition(name)
        page = context.store.jobs(name, filters.to_filter(names), limit=limit, cursor=cursor)
    if as_json:
        records = [job_record(job, names) for job in page.jobs]
        say_json({"jobs": records, "cursor": page.cursor})
        return
    print_table(
        ("id", "state", "tenant", "attempts", "moved", "error", "message"),
        [
            (
                job.id,
                job.state,
                job.tenant,
                f"{job.attempt_count} of {job.attempt_base + job.max_attempts}",
                format_time(job.moved_at),
                job.error_code,
                (job.error_message or "")[:MESSAGE_WIDTH],
            )
            for job in page.jobs
        ],
        empty="no job matches",
    )
    if page.cursor:
        say(f"more: --cursor {page.cursor}")


@app.command("show")
def show_job(
    job_id: Annotated[str, argument("ID", "The job's id.")], as_json: arguments.AsJson = False
) -> None:
    """Show one job with its payload, history and notes.

    Looks that found nothing new are one line with their number; --json has every event.
    """
    if not is_id(job_id):
        raise UsageError(f"{job_id!r} is no job id: take it whole from `kesin jobs list`")
    with open_context() as context:
        job = context.store.job(job_id)
        if job is None:
            raise CommandError(f"there is no job {job_id}: it never was, or it has been pruned")
        names = context.store.definition(job.queue)
        events, notes = context.store.events(job_id), context.store.notes(job_id)
    if as_json:
        say_json(
            {
                **job_record(job, names),
                "events": [event_record(event, names) for event in events],
                "notes": [note_record(note) for note in notes],
            }
        )
        return
    print_job(job, names)
    print_history(events, names)
    print_traceback(events)
    print_notes(notes)


def print_job(job: Job, names: Definition | None) -> None:
    """Print the job's fields that are set, then the payload."""
    times = {
        "created": job.created_at,
        "due": job.run_at,
        "timer": job.timer_at,
        "claimed": job.claimed_at,
        "lease until": job.lease_until,
        "finished": job.finished_at,
        **stamps(job, names),
    }
    error = ": ".join(filter(None, (job.error_code, job.error_message)))
    fields = {
        "id": job.id,
        "queue": job.queue,
        "tenant": job.tenant,
        "key": job.dedup_key,
        "state": f"{job.state} ({PHASES[job.phase]})",
        "attempts": f"{job.attempt_count}, {job.attempts_left} left",
        "retries": job.retry_count or None,
        "flags": ", ".join(flag_names(job.flags, names)),
        "worker": job.worker,
        "error": f"{error} ({job.error_category})" if error else None,
        **{name: format_time(at) for name, at in times.items() if at is not None},
        "result": job.result_json,
    }
    print_table(("job", ""), [(name, text) for name, text in fields.items() if text])
    say()
    say("payload")
    pretty = json.dumps(decode_json(job.payload_json), indent=2, ensure_ascii=False)
    say(visible_lines(pretty))


def print_history(events: list[Event], names: Definition | None) -> None:
    """Print the events of a job; those that repeat one as one line."""
    say()
    print_table(
        ("seq", "at", "move", "from", "to", "by", "attempt", "what"),
        [
            (
                event.seq,
                format_time(event.at),
                event.move,
                event.from_state or "(new)",
                event.to_state or "(gone)",
                event.actor,
                event.attempt,
                _what(folded, names),
            )
            for folded in fold_events(events)
            for event in (folded.event,)
        ],
        title="history",
    )


def _what(folded: FoldedEvent, names: Definition | None) -> str:
    event = folded.event
    error = ": ".join(filter(None, (event.error_code, event.error_message)))
    parts = (
        f"× {folded.count} since {format_time(folded.since)}" if folded.count > 1 else "",
        error[:MESSAGE_WIDTH],
        f"due {format_time(event.run_at)}" if event.run_at and event.run_at > event.at else "",
        f"timer {format_time(event.timer_at)}" if event.timer_at else "",
        f"flags {', '.join(flag_names(event.flags, names))}" if event.flags else "",
        f"note {canonical_json(note)}" if (note := decode_note(event.note)) else "",
        "new payload" if event.payload else "",
    )
    return "; ".join(part for part in parts if part)


def print_traceback(events: list[Event]) -> None:
    """Print the last traceback of a handler, if there is one."""
    recorded = [(event.seq, text) for event in events if (text := recorded_traceback(event.note))]
    if recorded:
        seq, text = recorded[-1]
        say()
        say(f"traceback of {seq}")
        say(visible_lines(text))


def print_notes(notes: list[Note]) -> None:
    """Print the notes, if there are any."""
    if not notes:
        return
    say()
    print_table(
        ("at", "kind", "by", "details"),
        [(format_time(note.at), note.kind, note.actor, note.details) for note in notes],
        title="notes",
    )


app.command("act")(act)
