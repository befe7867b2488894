"""`kesin audit`: the jobs' history verified and exported, and the audit log."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from kesin.cli.support.arguments import AsJson, QueueNames, option
from kesin.cli.support.context import local_operator, open_context
from kesin.cli.support.errors import FAILED, CommandError, UsageError
from kesin.cli.support.records import print_records, record_of
from kesin.engine.access.audit_verification import AuditVerification, lines_missing, verify_audit_log
from kesin.engine.replay import verify
from kesin.engine.transfer.restore import check_signature, read_backup
from kesin.foundation.clock import iso, wall_clock_us
from kesin.foundation.encryption import key_ring
from kesin.foundation.settings import Settings
from kesin.foundation.terminal import bars, pluralize, print_table, say, say_json, warn
from kesin.foundation.text import decode_json
from kesin.store.audit_log import AuditHead, kept_since
from kesin.store.contract import Store

MAX_DIFFERENCES = 100  # differences that are reported
MAX_LINES = 1_000
LOG_COLUMNS = ("at", "actor", "action", "result", "queue", "site", "target", "details")
LOG_RESULTS = ("refused", "allowed")

app = typer.Typer(no_args_is_help=True)


@app.command("verify")
def verify_audit(
    queues: QueueNames = None,
    *,
    backup: Annotated[
        Path | None, option("FOLDER", "Check that the audit log continues this backup's audit log.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify the audit log, and all jobs by replaying their events.

    Compares every stored job with a replay of its events and, unless jobs moved meanwhile, the
    counters with the jobs. If no queue is named, also checks the audit log's chain: that no line
    has changed and only pruned lines are missing. Exits with 1 if anything differs.
    """
    if queues and backup:
        raise UsageError("--backup checks the audit log: do not name a queue")
    with open_context() as context:
        known, is_kept = (None, False) if backup is None else _known_head(backup, context.settings)
        reports = replay_queues(context.store, context.readable_queues(queues), shown=not as_json)
        directory = context.accounts.directory
        log = None if queues else verify_audit_log(directory, known, known_is_kept=is_kept)
    if as_json and log is not None:  # one more report, with the fields of a queue's and its own
        counts = {"queue": None, "jobs": 0, "events": log.lines, "different": len(log.problems)}
        found = {"differences": log.problems[:MAX_DIFFERENCES], "counters": None}
        say_json([*reports, {**counts, **found, "audit_log": log.as_record()}])
    elif as_json:
        say_json(reports)
    else:
        print_reports(reports)
        if log is not None:
            print_audit_log(log)
    if any(report["different"] for report in reports) or (log is not None and log.problems):
        raise typer.Exit(FAILED)


def _known_head(backup: Path, settings: Settings) -> tuple[AuditHead, bool]:
    """The head of the audit log in a signed backup, and whether it is too young to be pruned."""
    saved = read_backup(backup)
    if check_signature(saved, key_ring(settings), allow_unsigned=True) is None:
        warn(f"the signature of {backup} was not checked, so the backup may have been altered")
    if saved.audit_head is None:
        raise CommandError(f"{backup} is older than the audit log's chain: use a newer backup")
    at = (saved.manifest.audit_head or {}).get("at")  # an earlier version did not say
    since = kept_since(settings.audit_days, wall_clock_us())
    return saved.audit_head, at is not None and at >= since


def print_audit_log(log: AuditVerification) -> None:
    parts = [f"{pluralize(log.lines, 'line')} in the chain"]
    parts += [f"{log.older} from before it"] if log.older else []
    parts += [f"lines up to number {log.pruned_to} pruned"] if log.pruned_to else []
    outcome = "BROKEN" if log.problems else "complete"
    say(f"audit log {outcome}: {', '.join(parts)}")
    for text in log.problems[:MAX_DIFFERENCES]:
        warn(f"audit log: {text}")
    if log.problems:
        first = "" if log.first_broken is None else f"; the first broken line is {log.first_broken}"
        warn(f"audit log: {lines_missing(log.missing)}{first}")


def replay_queues(store: Store, queues: Sequence[str], *, shown: bool) -> list[dict[str, Any]]:
    """Replay these queues with a progress bar; a report for each."""
    total = sum(store.stats(name).total for name in queues)
    with bars(shown=shown) as bar:
        advance = bar("replaying", total)
        return [_report(store, name, advance) for name in queues]


def _report(store: Store, queue: str, advance: Callable[[int], None]) -> dict[str, Any]:
    audit = verify(store, queue, max_differences=MAX_DIFFERENCES, progress=advance)
    return {
        "queue": queue,
        **record_of(audit, "jobs", "events", "different"),
        "differences": [str(difference) for difference in audit.differences],
        "counters": audit.counters,
    }


def print_reports(reports: list[dict[str, Any]]) -> None:
    print_table(
        ("queue", "jobs", "events", "differences", "counters"),
        map(itemgetter("queue", "jobs", "events", "different", "counters"), reports),
        empty="no queue has been opened yet",
    )
    for report in reports:
        for text in report["differences"]:
            warn(text)
        if report["different"] > len(report["differences"]):
            warn(f"{report['queue']}: and {report['different'] - len(report['differences'])} more")


@app.command("export")
def export_audit(
    queues: QueueNames = None,
    out: Annotated[Path | None, option("FILE", "The file; defaults to standard output.", dir_okay=False)] = None,
) -> None:
    """Write every event as a line of JSON.

    Events are written job by job, from one snapshot of each queue. Columns appear as stored: times
    are microseconds since 1970; payloads, results and notes are JSON. Empty columns are omitted.
    """
    with open_context() as context, _target(out) as file:
        names = context.readable_queues(queues)
        written = sum(_export(context.store, name, file) for name in names)
    if out is not None:
        warn(f"wrote {pluralize(written, 'event')} to {out}")


@contextmanager
def _target(out: Path | None) -> Iterator[TextIO]:
    """The file to write; it appears under its name once it is complete."""
    if out is None:
        yield sys.stdout
        return
    part = out.with_name(out.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def _export(store: Store, queue: str, file: TextIO) -> int:
    written = 0
    for job, history in store.scan(queue):
        for event in history:
            columns = {name: value for name, value in event._asdict().items() if value is not None}
            line = {"queue": queue, "tenant": job.tenant, **columns}
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
            written += 1
    return written


@app.command("log")
def show_log(
    *,
    actor: Annotated[
        str | None, option("ACTOR", "Only lines by this actor, e.g. user:ayse, key:ID or cli:root.")
    ] = None,
    action: Annotated[str | None, option("ACTION", "Only this action, such as user.add.")] = None,
    queue: Annotated[str | None, option("QUEUE", "Only lines about this queue.")] = None,
    site: Annotated[str | None, option("SITE", "Only lines about this site.")] = None,
    target: Annotated[str | None, option("TARGET", "Only this job, user or key.")] = None,
    limit: Annotated[int, option("N", "Maximum number of lines.", min=1, max=MAX_LINES)] = 50,
    as_json: AsJson = False,
) -> None:
    """Show who did what, newest first.

    The log records every sign-in, every change to users, keys and sites, and every operator action,
    including actions that were refused.
    """
    with open_context() as context:
        filters = {"actor": actor, "action": action, "queue": queue, "site": site, "target": target}
        lines = context.accounts.audit(local_operator(), **filters, limit=limit)
    if as_json:
        decoded = [{"at": iso(line.at), "details": decode_json(line.details)} for line in lines]
        say_json([line._asdict() | texts for line, texts in zip(lines, decoded, strict=True)])
        return
    records = [line._asdict() | {"result": LOG_RESULTS[line.allowed]} for line in lines]
    print_records(records, LOG_COLUMNS, {"actor": "by"}, as_json=False, empty="no line matches")
