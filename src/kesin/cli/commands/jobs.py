"""`kesin jobs`: pages of jobs, a job with its whole history, and operators' actions on jobs."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from kesin.cli.support import arguments, records
from kesin.cli.support.arguments import FilterOptions, Several, argument, flag, option
from kesin.cli.support.context import local_operator, open_context, stored_lifecycle
from kesin.cli.support.errors import FAILED, CommandError, UsageError, check_choice, did_you_mean
from kesin.engine.access.commands import Commands
from kesin.engine.access.companions import MAX_RELATIVES, FoldedEvents, fold_events
from kesin.engine.access.listing import JobSearch, resolve_text, titles_in
from kesin.engine.access.masking import Masking
from kesin.engine.bulk import id_batches
from kesin.engine.queue import Queue
from kesin.foundation import terminal
from kesin.foundation.clock import iso
from kesin.foundation.ids import is_id
from kesin.foundation.messages import decode_note, recorded_traceback
from kesin.foundation.terminal import format_time, print_table, say, say_json, visible_lines
from kesin.foundation.text import canonical_json, decode_json
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.errors import Category
from kesin.lifecycle.model import Job
from kesin.store.contract import Store
from kesin.store.declarations import COLUMN_BITS
from kesin.store.records import Definition, Event, Filter, Page, Progress
from kesin.workloads import workloads

MAX_JOBS = 1_000
RELATIVE = ("id", "queue", "state")  # what JSON says of a job before or after another
MESSAGE_WIDTH = 80
PRIORITIES = {-1: "-1 (low)", 1: "1 (high)", 2: "2 (urgent)"}  # that are not usual
REFUSALS = {
    "unknown": "unknown: no such job in this queue",
    "state": "state: the action does not apply to the job's state",
    "duplicate": "duplicate: another job has the key",
    "busy": "busy: every slot of the target state is taken",
    "stale": "stale: the claim was lost",
}

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
    limit: Annotated[int, option("N", "Jobs per page.", min=1, max=MAX_JOBS)] = 50,
    cursor: Annotated[str | None, option("ID", "Continue after the page that ended with this id.")] = None,
    as_json: arguments.AsJson = False,
) -> None:
    """List jobs, newest first."""
    if cursor is not None and not is_id(cursor):
        raise UsageError(f"{cursor!r} is not a cursor: use the cursor of the previous page")
    filters = FilterOptions(state, tenant, code, category, text, key)
    with open_context() as context:
        name = context.readable_queue(queue)
        names = context.store.definition(name)
        title_of = _titles(context.store, name)
        found = _resolved(context.store, name, filters.to_filter(names), title_of)
        if found.ids is not None:
            jobs = found.chosen(context.store.find(name, found.ids).values())
            page = Page(jobs[:limit], None)
        else:
            page = context.store.jobs(name, found.where, limit=limit, cursor=cursor)
    if as_json:
        jobs_shown = [{**records.job_record(job, names), "title": title_of(job) or None} for job in page.jobs]
        say_json({"jobs": jobs_shown, "cursor": page.cursor})
        return
    print_table(
        ("id", "title", "state", "tenant", "attempts", "moved", "error", "message"),
        [
            [
                job.id,
                title_of(job) or job.dedup_key,
                *records.cells(job, "state", "tenant"),
                f"{job.attempt_count - job.attempt_base} of {job.max_attempts}",
                *records.cells(job, "moved_at", "error_code"),
                (job.error_message or "")[:MESSAGE_WIDTH],
            ]
            for job in page.jobs
        ],
        empty="no job matches",
    )
    if page.cursor:
        say(f"more: --cursor {page.cursor}")


def _titles(store: Store, queue: str) -> Callable[[Job], str]:
    """What lists call the jobs of a queue; personal data in it is masked."""
    workload = workloads().get(queue)
    title_of = titles_in(store, queue, workload.job_title if workload else "")
    masking = Masking(workload.personal_fields if workload else ())
    return lambda job: title_of(masking.job(job))


def _resolved(store: Store, queue: str, where: Filter, title: Callable[[Job], str]) -> JobSearch:
    tenants = where.tenants or (tuple(store.stats(queue).tenants) if where.text else ())
    return resolve_text(where, tenants, lambda narrow, n: store.jobs(queue, narrow, limit=n), title)


@app.command("show")
def show_job(job_id: Annotated[str, argument("ID", "The job's id.")], as_json: arguments.AsJson = False) -> None:
    """Show one job with its payload, history and notes.

    Also shows the jobs it waits for, the jobs that wait for it and, while it runs, its progress.
    Repeated checks without a change are shown as one line with a count; --json prints every event.
    """
    if not is_id(job_id):
        raise UsageError(f"{job_id!r} is not a job id: copy all of it from `kesin jobs list`")
    with open_context() as context:
        job = context.store.job(job_id)
        if job is None:
            raise CommandError(f"there is no job {job_id}: it never existed, or it was pruned")
        names = context.store.definition(job.queue)
        events, notes = context.store.events(job_id), context.store.notes(job_id)
        queue = context.readable_queue(job.queue)
        progress = context.store.progress(queue, [job_id]).get(job_id)
        parents = context.store.parents(queue, job_id, limit=MAX_RELATIVES + 1)
        children = context.store.children(queue, job_id, limit=MAX_RELATIVES + 1)
        rules = stored_lifecycle(context.store, queue)
    if as_json:
        history = {
            "progress": progress and progress._asdict() | {"at": iso(progress.at)},
            "parents": [records.record_of(job, *RELATIVE) for job in parents[:MAX_RELATIVES]],
            "more_parents": len(parents) > MAX_RELATIVES,
            "children": [records.record_of(child, *RELATIVE) for child in children[:MAX_RELATIVES]],
            "more_children": len(children) > MAX_RELATIVES,
            "events": [records.event_record(event, names) for event in events],
            "notes": [
                {"at": iso(at), "kind": kind, "actor": actor, "details": decode_json(details)}
                for _, at, kind, actor, details in notes
            ],
        }
        say_json(records.job_record(job, names) | history)
        return
    held = rules is not None and job.state in rules.waiting_states
    print_job(job, names, "waiting for other jobs" if held else records.PHASES[job.phase], progress)
    print_relatives("depends on", parents)
    print_relatives("needed by", children)
    print_history(events, names)
    recorded = [(event.seq, text) for event in events if (text := recorded_traceback(event.note))]
    for seq, text in recorded[-1:]:
        say(f"\ntraceback of {seq}\n{visible_lines(text)}")
    columns, fields = ("at", "kind", "by", "details"), ("at", "kind", "actor", "details")
    print_table(columns, [records.cells(note, *fields) for note in notes], title="notes")


def print_job(job: Job, names: Definition | None, phase: str, progress: Progress | None) -> None:
    """Print the job's fields that are set, then the payload."""
    times = {
        "created": job.created_at,
        "due": job.run_at,
        "timer": job.timer_at,
        "claimed": job.claimed_at,
        "lease until": job.lease_until,
        "finished": job.finished_at,
        **records.stamps(job, names),
    }
    error = ": ".join(filter(None, (job.error_code, job.error_message)))
    fields = {
        "id": job.id,
        "queue": job.queue,
        "tenant": job.tenant,
        "key": f"{job.dedup_key} (held permanently)" if job.once else job.dedup_key,
        "priority": PRIORITIES.get(job.priority),
        "state": f"{job.state} ({phase})",
        "progress": _progress(progress),
        "attempts": f"{job.attempt_count - job.attempt_base} of {job.max_attempts}",
        "attempts in all": job.attempt_count if job.attempt_base else None,
        "retries": job.retry_count or None,
        "flags": ", ".join(records.flag_names(job.flags, names)),
        "worker": job.worker,
        "error": f"{error} ({job.error_category})" if error else None,
        **{name: format_time(at) for name, at in times.items() if at is not None},
        "result": job.result_json,
    }
    print_table(("job", ""), [(name, text) for name, text in fields.items() if text])
    pretty = json.dumps(decode_json(job.payload_json), indent=2, ensure_ascii=False)
    say(f"\npayload\n{visible_lines(pretty)}")


def _progress(said: Progress | None) -> str:
    if said is None:
        return ""
    share = None if said.fraction is None else f"{said.fraction:.0%}"
    return ", ".join(filter(None, (share, said.message, f"at {format_time(said.at)}")))


def print_relatives(title: str, jobs: list[Job]) -> None:
    columns = ("id", "queue", "state", "moved", "error", "result")
    names = ("id", "queue", "state", "moved_at", "error_code")
    shown = jobs[:MAX_RELATIVES]
    rows = [[*records.cells(job, *names), (job.result_json or "")[:MESSAGE_WIDTH]] for job in shown]
    print_table(columns, rows, title=title)
    if len(jobs) > MAX_RELATIVES:
        say(f"only the first {MAX_RELATIVES} are listed")


def print_history(events: list[Event], names: Definition | None) -> None:
    """Print the events of a job; those that repeat one as one line."""
    print_table(
        ("seq", "at", "move", "from", "to", "by", "attempt", "what"),
        [
            [
                *records.cells(folded.event, "seq", "at", "move"),
                folded.event.from_state or "(new)",
                folded.event.to_state or "(gone)",
                *records.cells(folded.event, "actor", "attempt"),
                _what(folded, names),
            ]
            for folded in fold_events(events)
        ],
        title="history",
    )


def _what(folded: FoldedEvents, names: Definition | None) -> str:
    event = folded.event
    error = ": ".join(filter(None, (event.error_code, event.error_message)))
    parts = (
        f"× {folded.count} since {format_time(folded.since)}" if folded.count > 1 else "",
        error[:MESSAGE_WIDTH],
        f"due {format_time(event.run_at)}" if event.run_at and event.run_at > event.at else "",
        f"timer {format_time(event.timer_at)}" if event.timer_at else "",
        f"flags {', '.join(records.flag_names(event.flags, names))}" if event.flags else "",
        f"note {canonical_json(note)}" if (note := decode_note(event.note)) else "",
        "new payload" if event.payload else "",
        f"priority {event.priority}" if event.mask & COLUMN_BITS["priority"] else "",
    )
    return "; ".join(part for part in parts if part)


@app.command("act")
def act(
    queue: arguments.QueueName,
    move: Annotated[str, argument("MOVE", "The action: requeue (Retry on the dashboard), cancel, …")],
    ids: Annotated[Several, argument("ID", "The ids of the jobs.")] = None,
    *,
    all_matching: Annotated[bool, flag("--all-matching", "Act on every job that matches the filters.")] = False,
    state: arguments.States = None,
    tenant: arguments.Tenants = None,
    code: arguments.Codes = None,
    category: arguments.Categories = None,
    text: arguments.TextPart = None,
    key: arguments.Key = None,
    option: Annotated[
        list[str] | None, option("NAME", "Set this option of the action; repeatable.", "--option")
    ] = None,
    reason: Annotated[str | None, option("TEXT", "The reason, stored in the history.")] = None,
    error_code: Annotated[str | None, option("CODE", "The error code to record.")] = None,
    error_category: Annotated[str | None, option("CATEGORY", "The error category to record.")] = None,
    priority: Annotated[int | None, option("N", "The new priority: -1, 0, 1 or 2.")] = None,
    lifecycle: arguments.LifecycleName = None,
    yes: arguments.Yes = False,
    dry_run: Annotated[bool, flag("--dry-run", "Only count the jobs that would move.")] = False,
    as_json: arguments.AsJson = False,
) -> None:
    """Act on jobs as an operator, for example to retry or cancel them.

    Name jobs by id, or use --all-matching with filters; the command then counts the matching jobs
    and asks for confirmation. Exits with 1 if no job moved and some were refused.
    """
    # Exactly what was counted and confirmed is moved: the ids are read first, and a job that
    # matches only later is left alone.
    filters = FilterOptions(state, tenant, code, category, text, key)
    _check_selection(ids, filters, all_matching=all_matching)
    terms: dict[str, Any] = {"reason": reason, "code": error_code, "priority": priority}
    if error_category is not None:
        terms["category"] = Category(arguments.check_category(error_category))
    with open_context() as context:
        opened = context.open_queue(queue, lifecycle)
        terms["options"] = _check_action(opened.lifecycle, queue, move, option or [])
        names, title_of = context.store.definition(queue), _titles(opened.store, queue)
        found, where = _resolved(opened.store, queue, filters.to_filter(names), title_of)
        chosen = found if found is not None else tuple(dict.fromkeys(ids or ()))
        commands = Commands({queue: opened}, context.accounts, workloads())
        commands.require_unrestricted(queue, move)
        batches = list(id_batches(opened, chosen, None if chosen else where))
        if dry_run:
            _print_chances(opened, move, batches, as_json=as_json)
            return
        if all_matching and batches and not yes:
            jobs = f"{terminal.pluralize(sum(map(len, batches)), 'job')} of {queue}"
            arguments.confirm(f"{move} {jobs}?", f"{move} of {jobs} needs confirmation")
        moved, already, refused = 0, 0, Counter[str]()
        for batch in batches:
            bulk = commands.act(local_operator(), queue, move, ids=batch, **terms)
            moved, already = moved + bulk.moved, already + bulk.already
            refused.update(bulk.refused)
    if as_json:
        say_json({"moved": moved, "already": already, "refused": dict(refused)})
    else:
        say(f"moved {moved}, already there {already}, refused {refused.total()}")
        for why, count in sorted(refused.items()):
            say(f"  {count} × {REFUSALS.get(why, why)}")
    if refused and not moved:
        raise typer.Exit(FAILED)


def _check_selection(ids: Several, filters: FilterOptions, *, all_matching: bool) -> None:
    if ids and (all_matching or filters.any_given):
        raise UsageError("name jobs by their ids or by filters, not by both")
    if not ids and not all_matching:
        filtered, free = "filters need --all-matching", "name jobs, or use --all-matching"
        raise UsageError(f"nothing was selected: {filtered if filters.any_given else free}")


def _check_action(rules: Lifecycle, queue: str, action: str, options: list[str]) -> frozenset[str]:
    actions = rules.actions_of("operator")
    if action not in actions:
        near = did_you_mean(action, actions) or ":"
        raise UsageError(
            f"{action!r} is not an action that an operator can take on {queue}{near} "
            f"the choices are {', '.join(actions) or 'none'}"
        )
    known = sorted(rules.options_of(action))
    return frozenset(check_choice(f"option of {action}", option, known) for option in options)


def _print_chances(queue: Queue, action: str, batches: list[Sequence[str]], *, as_json: bool) -> None:
    """Print which jobs could move, judged by state alone; guards are checked at the move."""
    states = Counter[str]()
    for batch in batches:
        known = queue.states(batch)
        states.update(known.get(job_id, "(unknown)") for job_id in batch)
    sources = {source for move in queue.lifecycle.actions[action] for source in move.sources}
    if as_json:
        chances = {state: {"jobs": n, "fits": state in sources} for state, n in states.items()}
        say_json({"chosen": states.total(), "states": chances})
        return
    rows = [(s, n, "may move" if s in sources else "refused") for s, n in sorted(states.items())]
    print_table(("state", "jobs", action), rows, empty="no job matches")
