"""`kesin jobs list` and `kesin jobs show`: pages of jobs, and one job with its whole history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kesin.cli.commands.act import act
from kesin.cli.support.arguments import (
    AsJson,
    Categories,
    Codes,
    Key,
    QueueName,
    States,
    Tenants,
    TextPart,
    Wanted,
)
from kesin.cli.support.errors import Failure, Usage
from kesin.foundation.clock import iso
from kesin.foundation.terminal import examples
from kesin.foundation.text import decoded
from kesin.lifecycle.model import Job
from kesin.store.records import Definition, Event, Note

if TYPE_CHECKING:
    from kesin.lifecycle.model import Job
    from kesin.store.records import Definition, Event, Note

PHASES: Final = ("ready", "claimed", "resting", "over", "waiting")


def flag_names(flags: int, names: Definition | None) -> list[str]:
    """The flags that are up; one without a name is called by its number."""
    known = names.flags if names else ()
    return [
        known[bit] if bit < len(known) else f"flag_{bit + 1}"
        for bit in range(flags.bit_length())
        if flags >> bit & 1
    ]


def stamps(row: Job | Event, names: Definition | None) -> dict[str, int]:
    """The named stamps that are set."""
    columns = ("stamp_1", "stamp_2", "stamp_3", "stamp_4")
    known = names.stamps if names else ()
    return {
        known[at] if at < len(known) else column: value
        for at, column in enumerate(columns)
        if (value := getattr(row, column)) is not None
    }


def error_record(row: Job | Event) -> dict[str, str | None] | None:
    """The error of a row, or None."""
    if row.error_code is None and row.error_category is None and row.error_message is None:
        return None
    return {
        "code": row.error_code,
        "category": row.error_category,
        "message": row.error_message,
    }


def job_record(job: Job, names: Definition | None = None) -> dict[str, Any]:
    """A job."""
    return {
        "id": job.id,
        "queue": job.queue,
        "tenant": job.tenant,
        "key": job.dedup_key,
        "state": job.state,
        "phase": PHASES[job.phase],
        "seq": job.seq,
        "attempts": job.attempt_count,
        "attempts_left": job.attempts_left,
        "max_attempts": job.max_attempts,
        "returns": job.return_count,
        "retries": job.retry_count,
        "flags": flag_names(job.flags, names),
        "error": error_record(job),
        "worker": job.worker,
        "created_at": iso(job.created_at),
        "moved_at": iso(job.moved_at),
        "run_at": iso(job.run_at),
        "timer_at": iso(job.timer_at),
        "claimed_at": iso(job.claimed_at),
        "lease_until": iso(job.lease_until),
        "finished_at": iso(job.finished_at),
        "stamps": {name: iso(at) for name, at in stamps(job, names).items()},
        "move": job.move,
        "actor": job.actor,
        "note": decoded(job.note),
        "result": decoded(job.result),
        "payload": decoded(job.payload),
    }


def event_record(event: Event, names: Definition | None = None) -> dict[str, Any]:
    """A line of a job's history, with what the move set and nothing it left alone."""
    record: dict[str, Any] = {
        "seq": event.seq,
        "at": iso(event.at),
        "move": event.move,
        "from": event.from_state or None,
        "to": event.to_state or None,
        "actor": event.actor,
        "worker": event.worker,
        "attempt": event.attempt,
        "flags": flag_names(event.flags, names),
        "error": error_record(event),
        "note": decoded(event.note),
        "result": decoded(event.result),
        "payload": decoded(event.payload),
        "run_at": iso(event.run_at),
        "timer_at": iso(event.timer_at),
        "finished_at": iso(event.finished_at),
        "stamps": {name: iso(at) for name, at in stamps(event, names).items()},
    }
    return {key: value for key, value in record.items() if value not in (None, [], {})}


def note_record(note: Note) -> dict[str, Any]:
    """A remark."""
    return {
        "at": iso(note.at),
        "kind": note.kind,
        "actor": note.actor,
        "details": decoded(note.details),
    }


MOST = 1_000
MESSAGE_WIDTH = 80

app = typer.Typer(help="Look at jobs and move them.", no_args_is_help=True)


@app.command(
    "list",
    epilog=examples(
        "kesin jobs list emails --state failed",
        "kesin jobs list emails --tenant ankara --limit 1000 --json",
    ),
)
def list_jobs(
    queue: QueueName,
    *,
    state: States = None,
    tenant: Tenants = None,
    code: Codes = None,
    category: Categories = None,
    text: TextPart = None,
    key: Key = None,
    limit: Annotated[
        int, typer.Option(min=1, max=MOST, metavar="N", help="Jobs on the page.")
    ] = 50,
    cursor: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on after the page that ended with this.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from kesin.cli.support.context import open_desk
    from kesin.cli.support.output import clock_time, print_table, say, say_json
    from kesin.foundation.ids import is_id

    if cursor is not None and not is_id(cursor):
        raise Usage(f"{cursor!r} is no cursor: take it from the page before")
    wanted = Wanted(state, tenant, code, category, text, key)
    with open_desk() as desk:
        name = desk.readable(queue)
        names = desk.store.definition(name)
        page = desk.store.jobs(name, wanted.checked(names), limit=limit, cursor=cursor)
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
                clock_time(job.moved_at),
                job.error_code,
                (job.error_message or "")[:MESSAGE_WIDTH],
            )
            for job in page.jobs
        ],
        empty="no job matches",
    )
    if page.cursor:
        say(f"more: --cursor {page.cursor}")


@app.command(
    "show",
    epilog=examples(
        "kesin jobs show 01890a5d-ac96-774b-bcce-b302099a8057",
    ),
)
def show_job(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
    as_json: AsJson = False,
) -> None:
    """Show one job with its payload, history and notes."""
    from kesin.cli.support.context import open_desk
    from kesin.cli.support.output import say_json
    from kesin.foundation.ids import is_id

    if not is_id(job_id):
        raise Usage(f"{job_id!r} is no job id: take it whole from `kesin jobs list`")
    with open_desk() as desk:
        job = desk.store.job(job_id)
        if job is None:
            raise Failure(f"there is no job {job_id}: it never was, or it has been pruned")
        names = desk.store.definition(job.queue)
        events, notes = desk.store.events(job_id), desk.store.notes(job_id)
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
    print_notes(notes)


def print_job(job: Job, names: Definition | None) -> None:
    """The row, without what is empty, then the payload."""
    from kesin.cli.support.output import clock_time, print_table, say, visible_lines
    from kesin.foundation.text import decoded

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
        **{name: clock_time(at) for name, at in times.items() if at is not None},
        "result": job.result,
    }
    print_table(("job", ""), [(name, text) for name, text in fields.items() if text])
    say()
    say("payload")
    pretty = json.dumps(decoded(job.payload), indent=2, ensure_ascii=False)
    say(visible_lines(pretty))


def print_history(events: list[Event], names: Definition | None) -> None:
    """What happened, line by line."""
    from kesin.cli.support.output import clock_time, print_table, say

    say()
    print_table(
        ("seq", "at", "move", "from", "to", "by", "attempt", "what"),
        [
            (
                event.seq,
                clock_time(event.at),
                event.move,
                event.from_state or "(new)",
                event.to_state or "(gone)",
                event.actor,
                event.attempt,
                _what(event, names),
            )
            for event in events
        ],
        title="history",
    )


def _what(event: Event, names: Definition | None) -> str:
    from kesin.cli.support.output import clock_time

    error = ": ".join(filter(None, (event.error_code, event.error_message)))
    parts = (
        error[:MESSAGE_WIDTH],
        f"due {clock_time(event.run_at)}" if event.run_at and event.run_at > event.at else "",
        f"timer {clock_time(event.timer_at)}" if event.timer_at else "",
        f"flags {', '.join(flag_names(event.flags, names))}" if event.flags else "",
        f"note {event.note}" if event.note else "",
        "new payload" if event.payload else "",
    )
    return "; ".join(part for part in parts if part)


def print_notes(notes: list[Note]) -> None:
    """The remarks, if there are any."""
    from kesin.cli.support.output import clock_time, print_table, say

    if not notes:
        return
    say()
    print_table(
        ("at", "kind", "by", "details"),
        [(clock_time(note.at), note.kind, note.actor, note.details) for note in notes],
        title="notes",
    )


app.command(
    "act",
    epilog=examples(
        "kesin jobs act emails requeue 01890a5d-ac96-774b-bcce-b302099a8057",
        "kesin jobs act emails requeue --all-matching --code TIMEOUT --dry-run",
    ),
)(act)
