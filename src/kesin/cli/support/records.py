"""What the store keeps as the records that scripts read: jobs, their events, their notes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kesin.foundation.clock import iso
from kesin.foundation.messages import decode_note, recorded_traceback
from kesin.foundation.terminal import Cell, format_time, print_table, say_json
from kesin.foundation.text import decode_json
from kesin.lifecycle.model import Job
from kesin.store.declarations import COLUMN_BITS
from kesin.store.records import Definition, Event

PHASES: Final = ("ready", "claimed", "resting", "over", "waiting")


def record_of(row: object, *names: str) -> dict[str, Any]:
    """These attributes of a row, with the times, whose names end with ``_at``, as text."""
    values = {name: getattr(row, name) for name in names}
    return {name: iso(value) if name.endswith("_at") else value for name, value in values.items()}


def cells(row: object, *names: str) -> list[Cell]:
    """These attributes of a row for a table, with times (``at``, ``…_at``) and lists as text."""
    return [_cell(name, getattr(row, name)) for name in names]


def _cell(name: str, value: Any) -> Cell:
    if name == "at" or name.endswith("_at"):
        return format_time(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list | tuple) else value


def print_records(
    records: Sequence[dict[str, Any]], fields: Sequence[str], headings: Mapping[str, str], *, as_json: bool, empty: str
) -> None:
    """Print records as JSON, or these fields of each as a table; a field may have a heading."""
    if as_json:
        say_json(records)
        return
    rows = [[_cell(name, record[name]) for name in fields] for record in records]
    print_table([headings.get(name, name.replace("_", " ")) for name in fields], rows, empty=empty)


def flag_names(flags: int, names: Definition | None) -> list[str]:
    """The names of the flags that are set; a flag without a name is called by its number."""
    known = names.flags if names else ()
    bits = [bit for bit in range(flags.bit_length()) if flags >> bit & 1]
    return [known[bit] if bit < len(known) else f"flag_{bit + 1}" for bit in bits]


def stamps(row: Job | Event, names: Definition | None) -> dict[str, int]:
    columns = ("stamp_1", "stamp_2", "stamp_3", "stamp_4")
    known = names.stamps if names else ()
    called = [*known, *columns[len(known) :]]
    stamped = {name: getattr(row, column) for name, column in zip(called, columns, strict=True)}
    return {name: value for name, value in stamped.items() if value is not None}


def error_record(row: Job | Event) -> dict[str, str | None] | None:
    if row.error_code is None and row.error_category is None and row.error_message is None:
        return None
    return {"code": row.error_code, "category": row.error_category, "message": row.error_message}


def job_record(job: Job, names: Definition | None = None) -> dict[str, Any]:
    return {
        **record_of(job, "id", "queue", "tenant"),
        "key": job.dedup_key,
        "once": bool(job.once),
        "priority": job.priority,
        "state": job.state,
        "phase": PHASES[job.phase],
        "seq": job.seq,
        "attempts": job.attempt_count,
        **record_of(job, "attempts_left", "max_attempts"),
        "returns": job.return_count,
        "retries": job.retry_count,
        "flags": flag_names(job.flags, names),
        "error": error_record(job),
        "worker": job.worker,
        **record_of(job, "created_at", "moved_at", "run_at", "timer_at", "claimed_at"),
        "lease_until": iso(job.lease_until),
        "finished_at": iso(job.finished_at),
        "stamps": {name: iso(at) for name, at in stamps(job, names).items()},
        **record_of(job, "move", "actor"),
        "note": decode_note(job.note),
        **record_of(job, "result", "payload"),
    }


def event_record(event: Event, names: Definition | None = None) -> dict[str, Any]:
    """A line of a job's history, with what the move set and nothing it left alone."""
    record: dict[str, Any] = {
        "seq": event.seq,
        "at": iso(event.at),
        "move": event.move,
        "from": event.from_state or None,
        "to": event.to_state or None,
        **record_of(event, "actor", "worker", "attempt"),
        "flags": flag_names(event.flags, names),
        "error": error_record(event),
        "note": decode_note(event.note),
        "traceback": recorded_traceback(event.note) or None,
        "result": decode_json(event.result),
        "payload": decode_json(event.payload),
        "priority": event.priority if event.mask & COLUMN_BITS["priority"] else None,
        **record_of(event, "run_at", "timer_at", "finished_at"),
        "stamps": {name: iso(at) for name, at in stamps(event, names).items()},
    }
    return {key: value for key, value in record.items() if value not in (None, [], {})}
