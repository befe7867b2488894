"""The actions on a job's page: those of its workload, else the operator's moves."""

from collections.abc import Callable, Sequence
from typing import Final

from kesin.engine.access.commands import JobDetails
from kesin.engine.access.corrected import failed_by_data
from kesin.foundation.logs import Logger
from kesin.lifecycle.declare import Lifecycle, Move
from kesin.lifecycle.failures import decided_codes
from kesin.lifecycle.model import Job, MoveContext, failing_guard
from kesin.lifecycle.vocabulary import STAY
from kesin.web.dashboard.frame.page import JobAction, PageContext
from kesin.web.dashboard.queues.actions import DESTRUCTIVE, label_of
from kesin.web.dashboard.queues.fix import fix_path, offers_fix
from kesin.web.dashboard.state_groups import state_group

log = Logger("kesin.dashboard")
NEEDS_HELP: Final = frozenset({"failed", "person", "retrying"})


def job_actions(ctx: PageContext, history: JobDetails) -> list[JobAction]:
    """What the user can do with the job now: what helps comes first, what destroys last."""
    if not ctx.actor.has("operate"):
        return []
    find: Callable[[PageContext, JobDetails], Sequence[JobAction]]
    find = ctx.pages_of(history.job.queue).job_actions or lifecycle_actions
    try:
        found = find(ctx, history)
    except Exception:  # the job is shown even if its workload cannot say what it offers
        log.exception("actions_failed", queue=history.job.queue)
        return []
    return sorted(found, key=lambda action: (action.destructive, not action.primary))


def lifecycle_actions(ctx: PageContext, history: JobDetails) -> list[JobAction]:
    """The operator's moves that the job can make now, each with the dialog of its queue."""
    job, queue = history.job, ctx.service.queues[history.job.queue]
    possible = [
        (action, _is_destructive(queue.lifecycle, moves, action))
        for action in history.actions
        if (moves := possible_moves(queue.lifecycle, job, action, queue.now()))
    ]
    sets_priority = queue.lifecycle.sets_priority
    helpful = [action for action, ends in possible if not (ends or sets_priority(action))]
    needs_help = state_group(queue.lifecycle, job.state) in NEEDS_HELP
    needs_help &= job.error_code not in decided_codes(queue.lifecycle)
    bad_data = failed_by_data(queue, job) and offers_fix(ctx, queue, job.state)
    hint = ctx.say("It fails again until its data is fixed.") if bad_data else ""
    path = fix_path(job.queue, ids=job.id)
    fix = [JobAction(ctx.say("Fix data"), path, is_link=True, primary=True)] if bad_data else []
    return fix + [
        JobAction(
            label_of(ctx, action),
            f"/dashboard/queues/{job.queue}/sheet",
            fields={"call": action, "ids": job.id},
            primary=needs_help and not bad_data and action in helpful[:1],
            destructive=destructive,
            hint=hint if action == "requeue" else "",
        )
        for action, destructive in possible
    ]


def possible_moves(lifecycle: Lifecycle, job: Job, action: str, now: int) -> list[Move]:
    """The moves of the action that show in lists and whose guards hold now."""
    context = MoveContext(now=now, actor="")
    return [
        move
        for move in lifecycle.actions[action]
        if job.state in move.sources
        and move.relocates
        and failing_guard(move, job, lifecycle, context, None) is None
    ]


def _is_destructive(lifecycle: Lifecycle, moves: Sequence[Move], action: str) -> bool:
    groups = {"" if move.to == STAY else state_group(lifecycle, move.to) for move in moves}
    return action in DESTRUCTIVE or groups <= {"failed", "expired"}
