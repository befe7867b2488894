"""`kesin jobs act`: an operator's action on chosen jobs, or on all that match.

Exactly what was counted and confirmed is moved: the ids are read first, and a job that matches
only later is left alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from kesin.cli.support import arguments
from kesin.cli.support.arguments import argument, flag, option
from kesin.cli.support.context import local_operator, open_context
from kesin.cli.support.errors import FAILED, UsageError, check_choice, did_you_mean
from kesin.engine.queue import Queue
from kesin.foundation.terminal import pluralize, print_table, say, say_json
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.errors import Category
from kesin.store.records import Filter
from kesin.workloads import workloads
from kesin.workloads.common.cli import commands_over

BATCH = 1_000


def act(
    queue: arguments.QueueName,
    move: Annotated[str, argument("MOVE", "The operator's call, like requeue or cancel.")],
    ids: Annotated[list[str] | None, argument("ID", "The jobs.")] = None,
    *,
    all_matching: Annotated[
        bool, flag("--all-matching", "Instead of ids: every job the filters leave.")
    ] = False,
    state: arguments.States = None,
    tenant: arguments.Tenants = None,
    code: arguments.Codes = None,
    category: arguments.Categories = None,
    text: arguments.TextPart = None,
    key: arguments.Key = None,
    option: Annotated[
        list[str] | None, option("NAME", "Set this option of the call; repeatable.", "--option")
    ] = None,
    reason: Annotated[str | None, option("TEXT", "Why; kept in the history.")] = None,
    error_code: Annotated[str | None, option("CODE", "The code a failing move records.")] = None,
    error_category: Annotated[
        str | None, option("CATEGORY", "The category a failing move records.")
    ] = None,
    lifecycle: arguments.LifecycleName = None,
    yes: arguments.Yes = False,
    dry_run: Annotated[bool, flag("--dry-run", "Only count, and say what could move.")] = False,
    as_json: arguments.AsJson = False,
) -> None:
    """Make an operator's move of jobs.

    Name the jobs by their ids, or with --all-matching and filters: then they are counted first
    and you are asked. Exits with 1 when nothing moved and something was refused.
    """
    filters = arguments.FilterOptions(state, tenant, code, category, text, key)
    _check_selection(ids, filters, all_matching=all_matching)
    recorded_category = (
        None if error_category is None else Category(arguments.check_category(error_category))
    )
    with open_context() as context:
        opened = context.open_queue(queue, lifecycle)
        options = _check_action(opened.lifecycle, queue, move, option or [])
        where = filters.to_filter(context.store.definition(queue))
        commands = commands_over({queue: opened}, workloads().values(), context.accounts)
        commands.require_unrestricted(queue, move)
        if dry_run:
            _print_chances(opened, move, _states(opened, ids, where), as_json=as_json)
            return
        job_ids = list(dict.fromkeys(ids or _matching(opened, where)))
        if all_matching and job_ids and not yes:
            jobs = f"{pluralize(len(job_ids), 'job')} of {queue}"
            arguments.confirm(f"{move} {jobs}?", f"{move} of {jobs} needs a confirmation")
        moved, already, refused = 0, 0, Counter[str]()
        for start in range(0, len(job_ids), BATCH):
            bulk = commands.act(
                local_operator(),
                queue,
                move,
                ids=job_ids[start : start + BATCH],
                options=options,
                reason=reason,
                code=error_code,
                category=recorded_category,
            )
            moved, already = moved + bulk.moved, already + bulk.already
            refused.update(bulk.refused)
    if as_json:
        say_json({"moved": moved, "already": already, "refused": dict(refused)})
    else:
        _print_moved(moved, already, refused)
    if refused and not moved:
        raise typer.Exit(FAILED)


def _check_selection(
    ids: list[str] | None, filters: arguments.FilterOptions, *, all_matching: bool
) -> None:
    if ids and (all_matching or filters.any_given):
        raise UsageError("name jobs by their ids or by filters, not by both")
    if not ids and not all_matching:
        hint = (
            "filters need --all-matching"
            if filters.any_given
            else "name jobs, or use --all-matching"
        )
        raise UsageError(f"nothing was chosen: {hint}")


def _check_action(
    lifecycle: Lifecycle, queue: str, action: str, options: list[str]
) -> frozenset[str]:
    actions = lifecycle.actions_of("operator")
    if action not in actions:
        near = did_you_mean(action, actions) or ":"
        raise UsageError(
            f"{action!r} is no move an operator can make on {queue}{near} "
            f"there are {', '.join(actions) or 'none'}"
        )
    known = {
        guard.names[0]
        for move in lifecycle.actions[action]
        for guard in move.when
        if guard.kind == "option"
    }
    return frozenset(
        check_choice(f"option of {action}", option, sorted(known)) for option in options
    )


def _matching(queue: Queue, where: Filter) -> dict[str, str]:
    """The jobs a filter leaves: id → state."""
    states: dict[str, str] = {}
    cursor: str | None = None
    while True:
        page = queue.jobs(where, limit=BATCH, cursor=cursor)
        states |= {job.id: job.state for job in page.jobs}
        if page.cursor is None:
            return states
        cursor = page.cursor


def _states(queue: Queue, ids: list[str] | None, where: Filter) -> Counter[str]:
    if not ids:
        return Counter(_matching(queue, where).values())
    jobs = (queue.job(job_id) for job_id in dict.fromkeys(ids))
    return Counter(job.state if job else "(unknown)" for job in jobs)


def _print_chances(queue: Queue, action: str, states: Counter[str], *, as_json: bool) -> None:
    """Print which jobs could move, judged by state alone; guards are checked at the move."""
    sources = {source for move in queue.lifecycle.actions[action] for source in move.sources}
    if as_json:
        chances = {state: {"jobs": n, "fits": state in sources} for state, n in states.items()}
        say_json({"chosen": states.total(), "states": chances})
        return
    print_table(
        ("state", "jobs", action),
        [(s, n, "may move" if s in sources else "refused") for s, n in sorted(states.items())],
        empty="no job matches",
    )


def _print_moved(moved: int, already: int, refused: Counter[str]) -> None:
    say(f"moved {moved}, already there {already}, refused {refused.total()}")
    for reason, count in sorted(refused.items()):
        say(f"  {count} × {REFUSALS.get(reason, reason)}")


REFUSALS = {
    "unknown": "unknown: no such job in this queue",
    "state": "state: no move of this name leaves the job's state",
    "duplicate": "duplicate: another job holds the key",
    "busy": "busy: the target state takes one job at a time",
    "stale": "stale: the claim was lost",
}
