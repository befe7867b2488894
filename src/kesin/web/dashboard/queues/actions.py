"""Actions on many jobs: previewed exactly, done once, reported exactly."""

from collections import Counter
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kesin.engine.access.listing import JobSearch
from kesin.engine.bulk import ActionPreview, BulkResult
from kesin.engine.queue import Queue
from kesin.foundation.ids import is_id
from kesin.foundation.problems import Invalid
from kesin.store.records import Filter
from kesin.web.bodies import first_value
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.queues import filters
from kesin.web.dashboard.queues.filters import Fields, PageFilter
from kesin.web.dashboard.state_groups import glossed

MAX_FOREGROUND_JOBS: Final = 2_000  # moved while the user waits; more run in the background
MAX_SELECTED: Final = 1_500  # ids in a form
MAX_REASON_CHARS: Final = 500
MAX_LINKED: Final = 100  # refused jobs that the result links to
Refusals = tuple[tuple[str, int], ...]  # reasons, and how many jobs do not move for each

_RETRY: Final = ("Retry", "Retry 1 job", "Retry %(n)s jobs")
# Labels of an action: its button in the bar, then the confirming button for one job and for many.
LABELS: Final[dict[str, tuple[str, str, str]]] = {
    **dict.fromkeys(("RETRY_SELECTED", "requeue", "retry"), _RETRY),
    "RESET_TO_QUEUED": ("Reset to queued", "Reset 1 job", "Reset %(n)s jobs"),
    "MARK_FAILED": ("Mark failed", "Mark 1 job as failed", "Mark %(n)s jobs as failed"),
    "resend": ("Send again", "Send 1 job again", "Send %(n)s jobs again"),
    "approve": ("Approve", "Approve 1 job", "Approve %(n)s jobs"),
    "cancel": ("Cancel", "Cancel 1 job", "Cancel %(n)s jobs"),
    "dismiss": ("Dismiss", "Dismiss 1 job", "Dismiss %(n)s jobs"),
    "prioritize": ("Set priority", "Set the priority of 1 job", "Set the priority of %(n)s jobs"),
}
OPTIONS: Final = {"clearErrors": "Clear the last error"}
DESTRUCTIVE: Final = frozenset({"MARK_FAILED", "cancel"})
DISMISSAL: Final = "A dismissed job stays in the list and needs no further action. A retry is still possible."
REASONS: Final[dict[str, str]] = {
    "unclaimed": "a worker is working on it",
    "holds_claim": "a worker is working on it",
    "flag_not_set": "already requested",
    "code_in": "its error code does not allow it",
    "code_not_in": "its error code does not allow it",
    "category_in": "its error category does not allow it",
    "retries_left": "no retries are left",
    "budget_left": "no attempts are left",
    "duplicate": "another job has its key",
    "busy": "all slots are in use",
    "unknown": "there is no such job, or you have no access to it",
    "stale": "it has since changed",
}


class OfferedAction(NamedTuple):
    """An action in the bar of a queue's page."""

    action: str
    label: str
    sources: tuple[str, ...]
    ends: bool


class Preview(NamedTuple):
    """What an action would do now; nothing was changed."""

    matched: int
    moving: dict[str, int]
    refused: Refusals

    @property
    def moved(self) -> int:
        return sum(self.moving.values())

    @property
    def in_background(self) -> bool:
        return self.matched > MAX_FOREGROUND_JOBS


class Selection(NamedTuple):
    """The jobs of an action. ``until`` leaves out jobs created after the preview."""

    sought: JobSearch
    wanted: PageFilter
    every: bool  # all that match the filter, not selected ones
    until: int


def offered_actions(ctx: PageContext, queue: Queue) -> list[OfferedAction]:
    if not ctx.actor.has("operate"):
        return []
    actions = queue.lifecycle.actions
    return [
        OfferedAction(
            action,
            label_of(ctx, action),
            tuple({source: None for move in actions[action] for source in move.sources}),
            action in DESTRUCTIVE,
        )
        for action in _moving_actions(ctx, queue)
    ]


def _moving_actions(ctx: PageContext, queue: Queue) -> tuple[str, ...]:
    """Actions that show in lists; those that only set a flag are on the workload's own page."""
    actions, offered = queue.lifecycle.actions, ctx.commands.offered_actions(queue)
    return tuple(name for name in offered if any(move.relocates for move in actions[name]))


def label_of(ctx: PageContext, action: str) -> str:
    if action in LABELS:
        return ctx.say(LABELS[action][0])
    return action.replace("_", " ").capitalize()


def button_of(ctx: PageContext, action: str, n: int, shown: str) -> str:
    if action not in LABELS:
        return f"{label_of(ctx, action)} ({shown})"
    _, singular, plural = LABELS[action]
    return ctx.say(singular) if n == 1 else ctx.say(plural, n=shown)


def read_selection(ctx: PageContext, queue: Queue, fields: Fields) -> Selection:
    """Read a selection from a form: selected ids, or all that match the filter."""
    until = read_until(queue, first_value(fields, "until"))
    if first_value(fields, "all") == "1":
        wanted = filters.read_filter(fields, queue.lifecycle)
        stats = ctx.stats(queue, wanted.site)
        search = filters.resolve_search(ctx, queue.name, wanted, stats, until - 1)
        before = min(search.where.created_before or until, until)
        search = search._replace(where=replace(search.where, created_before=before))
        return Selection(search, wanted, every=True, until=until)
    texts = ",".join(fields.get("ids", ())).split(",")
    ids = tuple(job_id for job_id in dict.fromkeys(texts) if is_id(job_id))
    if not ids:
        raise Invalid("Select some jobs first.", code="nothing_selected")
    if len(ids) > MAX_SELECTED:
        raise Invalid("Select fewer jobs, or all that match.", code="too_many_selected")
    return Selection(JobSearch(ids, Filter()), PageFilter(), every=False, until=until)


def read_until(queue: Queue, text: str) -> int:
    """Jobs created from this time on were not previewed: the time of the dialog, or now."""
    now = queue.now()
    return min(int(text), now + 1) if text.isdecimal() and len(text) < 20 else now + 1  # noqa: PLR2004


def read_action(ctx: PageContext, queue: Queue, fields: Fields) -> tuple[str, Selection, frozenset[str]]:
    """The action that a form names, its jobs and options; raises Invalid if it is not offered."""
    action = first_value(fields, "call")
    if action not in _moving_actions(ctx, queue):
        raise Invalid(
            "%(call)s is not an operator action for %(queue)s", code="unknown_call", call=repr(action), queue=queue.name
        )
    options = frozenset(fields.get("option", ())) & queue.lifecycle.options_of(action)
    return action, read_selection(ctx, queue, fields), options


def preview(ctx: PageContext, queue: Queue, action: str, chosen: Selection, options: frozenset[str]) -> Preview:
    """What the action would do with each job, decided by the store as it will be for real."""
    jobs, commands = jobs_of(ctx, queue, chosen), ctx.commands
    if "where" in jobs and queue.now() < chosen.until == jobs["where"].created_before:
        jobs["where"] = replace(jobs["where"], created_before=None)  # that is: all, as counted
    foreseen = commands.preview(ctx.actor, queue.name, action, **jobs, options=options)
    missing = len(jobs["ids"]) - foreseen.matched if "ids" in jobs and not chosen.every else 0
    return Preview(foreseen.matched + missing, foreseen.moving, refusals(ctx, foreseen, missing))


def refusals(ctx: PageContext, foreseen: ActionPreview, missing: int = 0) -> Refusals:
    """Why jobs will not move, most common reason first; ``missing`` jobs do not exist."""
    reasons = Counter({"unknown": missing} if missing else {})
    for (state, reason), n in foreseen.staying.items():
        reasons[_reason_key(state, reason)] += n
    return describe_refusals(ctx, reasons)


def jobs_of(ctx: PageContext, queue: Queue, chosen: Selection) -> dict[str, Any]:
    """The argument for commands: the filter, or the selected jobs in one of its states."""
    ids, where = chosen.sought.ids, chosen.sought.where
    if ids is None:
        return {"where": where}
    if where.states:
        ids = tuple(job.id for job in filters.read_page(ctx, queue.name, chosen.sought).jobs)
    return {"ids": ids}


def reason_of(fields: Fields) -> str | None:
    return first_value(fields, "reason")[:MAX_REASON_CHARS] or None


def refused_jobs(bulk: BulkResult) -> tuple[Counter[str], tuple[str, ...]]:
    """Why jobs did not move, by stored keys (also if they were there), and which can be opened."""
    refused = [outcome for outcome in bulk.outcomes if outcome.result != "moved"]
    reasons = Counter(_reason_key(outcome.state, outcome.reason or outcome.result) for outcome in refused)
    link = tuple(outcome.id for outcome in refused if outcome.result != "unknown")
    return reasons, link[:MAX_LINKED]


def _reason_key(state: str | None, reason: str) -> str:
    return f"state {state}" if reason in {"state", "already"} else reason


def describe_refusals(ctx: PageContext, reasons: Counter[str]) -> Refusals:
    """The reasons in the user's language, most common first."""
    counts: Counter[str] = Counter()
    for key, n in reasons.items():
        reason, _, state = key.partition(" ")
        if reason == "state" and state:
            why = ctx.say("already %(state)s", state=glossed(ctx.catalogue.gettext, state))
        else:
            why = ctx.say(REASONS[reason]) if reason in REASONS else reason.replace("_", " ")
        counts[why] += n
    return tuple(counts.most_common())
