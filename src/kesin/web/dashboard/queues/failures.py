"""The failures of a queue in words: what each means, who acts, what is next, the right button."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

from kesin.engine.access.listing import JobSearch
from kesin.engine.queue import Queue
from kesin.foundation.messages import recorded_message
from kesin.lifecycle.errors import Category
from kesin.lifecycle.failures import failure_states, ready_states
from kesin.lifecycle.model import Job
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter, QueueStats
from kesin.web.dashboard.frame.formatting import Formatter
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.queues import actions
from kesin.web.dashboard.queues.filters import read_page
from kesin.web.dashboard.queues.fix import fix_path, offers_fix
from kesin.web.dashboard.state_groups import StateGroup, state_group
from kesin.web.failures import FailureGroup, Failures

PERMANENT: Final = Category.PERMANENT.value
DISMISS: Final = "dismiss"
TRIAGE_PATH: Final = "/dashboard/triage"
STAYS: Final = "They stay here until an operator acts; no automatic move is scheduled."
AUTHOR: Final = "author"  # of a template, in a workload's advice: the message says what and where


class FailureButton(NamedTuple):
    """What helps: a page, or the dialog of an action with these fields."""

    label: str
    path: str = ""
    fields: Mapping[str, str] | None = None
    asks: bool = False  # in a dialog: each site has its own page
    dismissal: Mapping[str, str] | None = None  # where a retry is futile: what dismisses them


class FailureLine(NamedTuple):
    """A group of failures as a page shows it."""

    group: FailureGroup
    family: StateGroup
    means: str  # in the words of the workload
    message: Markup  # of its newest job, where the workload has no words
    subject: str  # the title of its only job
    who: str  # a role in the workload's advice
    next: str
    href: str  # of the list of these jobs
    triage: str  # the path of the dialog about this group
    button: FailureButton | None

    @property
    def retried_if_chosen(self) -> bool:
        """Whether a retry of all groups leaves it out unless the user chooses it."""
        return self.group.category == PERMANENT and bool(self.button and self.button.fields)


def failures_of(ctx: PageContext, queue: Queue, stats: QueueStats, site: str = "") -> Failures:
    """The failures that the user may see; ``stats`` are those of the same sites."""
    visible = ctx.commands.visible_sites(ctx.actor, queue.name)
    return ctx.service.failures.of(queue, stats, (site,) if site else visible)


def failure_lines(ctx: PageContext, queue: Queue, failures: Failures, site: str = "") -> list[FailureLine]:
    """A line for each group: first what needs a person, then the rest."""
    groups = sorted(failures.groups, key=lambda group: (not group.needs_you, group.retries))
    return [_line(ctx, queue, group, site) for group in groups]


def failure_codes(failures: Failures, chosen: str) -> list[tuple[str, int]]:
    """The error codes that occur, the most common first; and the chosen one."""
    codes = Counter({chosen: 0})
    for group in failures.groups:
        codes[group.code] += group.n
    return [(code, n) for code, n in codes.most_common() if code]


def count_by_code(ctx: PageContext, queue: Queue, stats: QueueStats, search: JobSearch, site: str) -> int | None:
    """How many jobs at rest have the codes or categories searched for; None if that is unknown."""
    where = replace(search.where, oldest_first=False)
    if search.ids is not None or not _is_plain(queue, where):
        return None
    return _matching_codes(failures_of(ctx, queue, stats, site).groups, where).total()


def advice_on(ctx: PageContext, queue: str, code: str, kind: str) -> dict[str, str] | None:
    """The workload's advice on an error, in the user's language."""
    workload = ctx.service.workloads.get(queue)
    if workload is None or workload.advice is None or not code:
        return None
    advice = workload.advice(code, kind)
    words: Mapping[str, str] = advice.get(ctx.language) or advice.get("en") or {}
    return {"means": "", "act": "", "next": "", **words, "who": str(advice.get("who", ""))}


def _line(ctx: PageContext, queue: Queue, group: FailureGroup, site: str) -> FailureLine:
    advice = advice_on(ctx, queue.name, group.code, group.category) or {}
    unknown = not advice or group.who == AUTHOR
    job = first_job(ctx, group, site) if unknown or group.n == 1 else None
    pairs = [("state", group.state), ("code", group.code), ("site", site)]
    query = urlencode([(name, value) for name, value in pairs if value])
    href = f"/dashboard/queues/{queue.name}?{query}"
    named = [("queue", queue.name), *pairs[:2], ("category", group.category), *pairs[2:]]
    triage = urlencode([(name, value) for name, value in named if value or name == "code"])
    return FailureLine(
        group,
        state_group(queue.lifecycle, group.state),
        advice.get("means", ""),
        ctx.tell(recorded_message(job.error_message, job.note)) if job and unknown else Markup(),
        ctx.job_name(job) if job and group.n == 1 else "",
        group.who or ("you" if group.needs_you else "none"),
        advice.get("next", "") or ("" if group.retries else ctx.say(STAYS)),
        href,
        f"{TRIAGE_PATH}?{triage}",
        _button(ctx, queue, group, href, site, job=job) if group.needs_you else None,
    )


def _button(
    ctx: PageContext, queue: Queue, group: FailureGroup, href: str, site: str, *, job: Job | None
) -> FailureButton:
    """Where the work is done: the workload's own page, a retry of all, one job, or the list."""
    if (link := ctx.pages_of(queue.name).triage(ctx, group)) is not None:
        return FailureButton(link.title, link.path, asks=not link.path)
    number = Formatter(ctx.language).number(group.n)
    fields = {"all": "1", "state": group.state, "code": group.code}
    fields["category"] = group.category  # the same code may be an error of the data too
    if site:
        fields["site"] = site
    retry = _retry_action(ctx, queue, group)
    if retry and group.code and not group.futile:
        label = actions.button_of(ctx, retry, group.n, number)
        return FailureButton(label, fields={"call": retry, **fields})
    if group.who == AUTHOR and job:
        return FailureButton(ctx.say("Show the error"), f"/dashboard/jobs/{job.id}")
    offered = {offer.action: offer.sources for offer in actions.offered_actions(ctx, queue)}
    dismissible = group.futile and group.state in offered.get(DISMISS, ())
    dismissal = {"call": DISMISS, **fields} if dismissible else None
    if group.futile and offers_fix(ctx, queue, group.state):
        path = fix_path(queue.name, state=group.state, code=group.code, site=site)
        return FailureButton(ctx.say("Fix data"), path, dismissal=dismissal)
    if group.n == 1 and job:
        return FailureButton(ctx.say("Open the job"), f"/dashboard/jobs/{job.id}")
    return FailureButton(ctx.say("Show %(n)s jobs", n=number), href, dismissal=dismissal)


def first_job(ctx: PageContext, group: FailureGroup, site: str = "") -> Job | None:
    codes = (group.code,) if group.code else ()
    where = Filter(states=(group.state,), codes=codes, tenants=(site,) if site else None)
    jobs = ctx.commands.jobs(ctx.actor, group.queue, where, limit=1).jobs
    return jobs[0] if jobs else None


def _retry_action(ctx: PageContext, queue: Queue, group: FailureGroup) -> str:
    """The operator's action that takes jobs of this state back to workers."""
    ready, moves = set(ready_states(queue.lifecycle)), queue.lifecycle.actions
    for offer in actions.offered_actions(ctx, queue):
        leaving = [move for move in moves[offer.action] if group.state in move.sources]
        if not offer.ends and any(move.to in ready for move in leaving):
            return offer.action
    return ""


def chosen_codes(ctx: PageContext, queue: Queue, action: str, search: JobSearch) -> tuple[list[dict[str, Any]], int]:
    """The errors of the jobs that an action is about to move; among how many, if not all."""
    if search.ids is None and _is_plain(queue, search.where):
        groups = failures_of(ctx, queue, ctx.stats(queue)).groups
        counted, among = _matching_codes(groups, search.where), 0
    else:
        page = read_page(ctx, queue.name, search, limit=MAX_PAGE)
        errors = ((job.error_code, job.error_category or "") for job in page.jobs)
        counted = Counter((code, category) for code, category in errors if code)
        among = len(page.jobs) if page.cursor else 0
    ready = set(ready_states(queue.lifecycle))
    again = any(move.to in ready for move in queue.lifecycle.actions[action])
    codes = [
        {"code": code, "category": category, "n": n, "futile": again and category == "VALIDATION"}
        for (code, category), n in counted.most_common()
    ]
    return codes, among


def _is_plain(queue: Queue, where: Filter) -> bool:
    """Whether the counts of failures can answer: jobs at rest, by sites, codes and categories."""
    plain = Filter(where.states, where.tenants, where.codes, where.categories)
    at_rest = where.states and set(where.states) <= set(failure_states(queue.lifecycle))
    if isinstance(where.created_before, int) and where.created_before > queue.now():
        where = replace(where, created_before=None)  # that is: all that are there
    return bool(at_rest) and where == plain


def _matching_codes(groups: Sequence[FailureGroup], where: Filter) -> Counter[tuple[str, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    for group in groups:
        wanted = (
            (not where.states or group.state in where.states)
            and (not where.codes or group.code in where.codes)
            and (not where.categories or group.category in where.categories)
        )
        if wanted and group.code:
            tenants = where.tenants
            n = group.n if tenants is None else sum(group.tenants.get(t, 0) for t in tenants)
            counted[group.code, group.category] += n
    return +counted
