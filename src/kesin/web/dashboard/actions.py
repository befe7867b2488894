"""What an operator does with many jobs at once: foreseen exactly, done once, told exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kesin.engine.queue import Bulk, Queue
from kesin.foundation.ids import is_id
from kesin.foundation.problems import Invalid
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Asked, Job, failing_guard
from kesin.lifecycle.words import STAY
from kesin.store.contract import MAX_PAGE, Filter, Outcome
from kesin.web.dashboard.filters import Fields, Meant, Wanted, meant, named, wanted_of
from kesin.web.dashboard.view import Looker

AT_ONCE: Final = 2_000  # jobs moved while somebody waits; more run in the background
MOST_PICKED: Final = 1_500  # ids a form holds
MOST_REASON: Final = 500
LINKED: Final = 100  # refused jobs that the result links to

# A call's words: on its button in the bar, then on the one that does it, for one row and for many.
WORDS: Final[dict[str, tuple[str, str, str]]] = {
    "RETRY_SELECTED": ("Retry", "Retry 1 row", "Retry %(n)s rows"),
    "RESET_TO_QUEUED": ("Reset to queued", "Reset 1 row", "Reset %(n)s rows"),
    "MARK_FAILED": ("Mark failed", "Mark 1 row failed", "Mark %(n)s rows failed"),
    "requeue": ("Requeue", "Requeue 1 row", "Requeue %(n)s rows"),
    "retry": ("Retry", "Retry 1 row", "Retry %(n)s rows"),
    "resend": ("Send again", "Send 1 row again", "Send %(n)s rows again"),
    "approve": ("Approve", "Approve 1 row", "Approve %(n)s rows"),
    "cancel": ("Cancel", "Cancel 1 row", "Cancel %(n)s rows"),
}
OPTIONS: Final = {"clearErrors": "Forget the last error"}
ENDS: Final = frozenset({"MARK_FAILED", "cancel"})
WHY: Final[dict[str, str]] = {
    "unclaimed": "a worker has it now",
    "holds_claim": "a worker has it now",
    "flag_not_set": "asked for already",
    "code_in": "its error code does not allow it",
    "code_not_in": "its error code does not allow it",
    "category_in": "its kind of error does not allow it",
    "retries_left": "no retries are left",
    "budget_left": "no attempts are left",
    "duplicate": "another job has its key",
    "busy": "another job is in that place",
    "unknown": "there is no such job for you",
    "stale": "it changed meanwhile",
}


@dataclass(frozen=True, slots=True)
class Offer:
    """An operator's call, as the bar shows it."""

    call: str
    label: str
    sources: tuple[str, ...]
    ends: bool


@dataclass(frozen=True, slots=True)
class Refusals:
    """Jobs that stay where they are, for one reason."""

    why: str
    n: int


@dataclass(frozen=True, slots=True)
class Preview:
    """What would happen now; nothing was changed."""

    matched: int
    moving: dict[str, int]
    refused: tuple[Refusals, ...]
    more: bool = False  # there are more than were counted
    exact: bool = True  # else some may be refused by a guard that only the job itself can answer

    @property
    def moved(self) -> int:
        """How many would move."""
        return sum(self.moving.values())

    @property
    def in_background(self) -> bool:
        """Whether they are too many to wait for."""
        return self.matched > AT_ONCE


@dataclass(frozen=True, slots=True)
class Selected:
    """Which jobs an action is about. ``until`` keeps out what was born after it was foreseen."""

    sought: Meant
    wanted: Wanted
    every: bool  # all that match, not picked ones
    until: int


def offers(looking: Looker, queue: Queue) -> list[Offer]:
    """The calls of this queue that an operator can make with any job."""
    if not looking.actor.has("operate"):
        return []
    return [
        Offer(
            call,
            label_of(looking, call),
            _sources(queue.lifecycle, call),
            call in ENDS,
        )
        for call in _moving_calls(looking, queue)
    ]


def _sources(lifecycle: Lifecycle, call: str) -> tuple[str, ...]:
    """Where a call can find a job."""
    return tuple(dict.fromkeys(one for move in lifecycle.calls[call] for one in move.sources))


def _moving_calls(looking: Looker, queue: Queue) -> tuple[str, ...]:
    """Calls that take a job elsewhere; one that only marks it belongs to its trade's own page."""
    calls = queue.lifecycle.calls
    return tuple(
        call
        for call in looking.service.commands.offered(queue)
        if any(move.to != STAY for move in calls[call])
    )


def label_of(looking: Looker, call: str) -> str:
    """The call in a word or two."""
    if call in WORDS:
        return looking.say(WORDS[call][0])
    return call.replace("_", " ").capitalize()


def button_of(looking: Looker, call: str, n: int, shown: str) -> str:
    """The call and how many rows it is about."""
    if call not in WORDS:
        return f"{label_of(looking, call)} ({shown})"
    _, one, many = WORDS[call]
    return looking.say(one) if n == 1 else looking.say(many, n=shown)


def selected(looking: Looker, queue: Queue, fields: Fields) -> Selected:
    """Read a selection from a form: picked ids, or all that match the filter."""
    now = queue.now()
    given = next(iter(fields.get("until", ())), "")
    until = min(int(given), now + 1) if given.isdecimal() and len(given) < 20 else now + 1  # noqa: PLR2004
    if next(iter(fields.get("all", ())), "") == "1":
        wanted = wanted_of(fields, queue.lifecycle)
        stats = looking.service.commands.stats(looking.actor, queue.name, site=wanted.site or None)
        sought = meant(looking, queue.name, wanted, stats, until - 1)
        before = sought.where.created_before
        where = replace(
            sought.where, created_before=until if before is None else min(before, until)
        )
        return Selected(replace(sought, where=where), wanted, every=True, until=until)
    asked = ",".join(fields.get("ids", ())).split(",")
    ids = tuple(one for one in dict.fromkeys(asked) if is_id(one))
    if not ids:
        raise Invalid(looking.say("Select some rows first."), code="nothing_selected")
    if len(ids) > MOST_PICKED:
        raise Invalid(
            looking.say("Select fewer rows, or all that match."), code="too_many_selected"
        )
    return Selected(Meant(ids, Filter()), Wanted(), every=False, until=until)


def call_of(looking: Looker, queue: Queue, fields: Fields) -> str:
    """The call a form names; raises Invalid for what no operator can ask of this queue."""
    call = next(iter(fields.get("call", ())), "")
    if call not in _moving_calls(looking, queue):
        raise Invalid(f"{call!r} is no operator call of {queue.name}", code="unknown_call")
    return call


# Before


def preview(looking: Looker, queue: Queue, call: str, chosen: Selected) -> Preview:
    """What the call would do with each of them, by the rules the store itself keeps."""
    commands, actor, sought = looking.service.commands, looking.actor, chosen.sought
    commands.queue(actor, queue.name, "operate", call)
    if sought.ids is not None:
        jobs = named(looking, queue.name, sought.ids, sought.where.states)
        gone = 0 if chosen.every else len(sought.ids) - len(jobs)
        return _foreseen(looking, queue, call, jobs, gone)
    if chosen.wanted.counted:
        stats = commands.stats(actor, queue.name, site=chosen.wanted.site or None)
        states = chosen.wanted.states or tuple(stats.states)
        by_state = {one: stats.states.get(one, 0) for one in states if stats.states.get(one)}
        if sum(by_state.values()) > AT_ONCE:
            return _by_state(looking, queue.lifecycle, call, by_state)
    jobs = []
    cursor: str | None = None
    while len(jobs) <= AT_ONCE:
        page = commands.jobs(actor, queue.name, sought.where, limit=MAX_PAGE, cursor=cursor)
        jobs += page.jobs
        cursor = page.cursor
        if cursor is None:
            return _foreseen(looking, queue, call, jobs)
    found = commands.would(actor, queue.name, call, where=sought.where)
    return _by_state(looking, queue.lifecycle, call, found.by_state, more=found.more)


def _foreseen(
    looking: Looker, queue: Queue, call: str, jobs: Iterable[Job], gone: int = 0
) -> Preview:
    moving: Counter[str] = Counter()
    refused: Counter[str] = Counter({_why(looking, "unknown"): gone} if gone else {})
    asked = Asked(queue.now(), looking.actor.name)
    for job in jobs:
        stopped_by = _stopped_by(queue.lifecycle, call, job, asked)
        if stopped_by is None:
            moving[job.state] += 1
        else:
            refused[_why(looking, stopped_by, job.state)] += 1
    matched = moving.total() + refused.total()
    return Preview(matched, dict(moving), _listed(refused))


def _stopped_by(lifecycle: Lifecycle, call: str, job: Job, asked: Asked) -> str | None:
    """The reason the store would give; None when it would move."""
    reasons = ["state"]
    for move in lifecycle.calls[call]:
        if job.state not in move.sources or "operator" not in move.by:
            continue
        guard = failing_guard(move, job, lifecycle, asked, None)
        if guard is None:
            return None
        reasons.append(guard.kind)
    return reasons[:2][-1]


def _by_state(
    looking: Looker,
    lifecycle: Lifecycle,
    call: str,
    by_state: dict[str, int],
    *,
    more: bool = False,
) -> Preview:
    leaves = {state for move in lifecycle.calls[call] for state in move.sources}
    moving = {state: n for state, n in by_state.items() if state in leaves}
    refused = Counter(
        {_why(looking, "state", one): n for one, n in by_state.items() if one not in leaves}
    )
    guards = {guard.kind for move in lifecycle.calls[call] for guard in move.when}
    exact = guards <= {"option"}
    return Preview(sum(by_state.values()), moving, _listed(refused), more, exact)


# Doing


def act(
    looking: Looker,
    queue: Queue,
    call: str,
    chosen: Selected,
    *,
    reason: str | None,
    options: frozenset[str],
) -> Bulk:
    """Do it, while somebody waits."""
    ids, where = chosen.sought.ids, chosen.sought.where
    if ids is not None and where.states:
        ids = tuple(job.id for job in named(looking, queue.name, ids, where.states))
    return looking.service.commands.act(
        looking.actor,
        queue.name,
        call,
        ids=ids,
        where=where if ids is None else None,
        options=options,
        reason=reason,
    )


def reason_of(fields: Fields) -> str | None:
    """Why somebody does it, in their words."""
    return next(iter(fields.get("reason", ())), "").strip()[:MOST_REASON] or None


def options_of(queue: Queue, call: str, fields: Fields) -> frozenset[str]:
    """The options that were ticked and that the call knows."""
    return frozenset(fields.get("option", ())) & queue.lifecycle.options_of(call)


# Afterwards


@dataclass(frozen=True, slots=True)
class Told:
    """Exactly what happened."""

    moved: int
    refused: tuple[Refusals, ...]
    link: tuple[str, ...]  # to the refused ones, the first

    @property
    def stayed(self) -> int:
        """How many did not move."""
        return sum(one.n for one in self.refused)


def told(looking: Looker, bulk: Bulk) -> Told:
    """The result of a bulk action, for people."""
    stayed = unmoved(bulk)
    reasons = Counter(reason_key(one) for one in stayed)
    return Told(bulk.moved, in_words(looking, reasons), linked(stayed))


def unmoved(bulk: Bulk) -> list[Outcome]:
    """The jobs that are where they were; for people, being there already is a refusal too."""
    return [one for one in bulk.outcomes if one.result != "moved"]


def linked(refused: Iterable[Outcome]) -> tuple[str, ...]:
    """Those of the refused jobs that can be looked at, up to what an address holds."""
    return tuple(one.id for one in refused if one.result != "unknown")[:LINKED]


def reason_key(outcome: Outcome) -> str:
    """Why a job was refused, as one word that can be counted and kept."""
    reason = outcome.reason or outcome.result
    return f"state {outcome.state}" if reason in {"state", "already"} else reason


def in_words(looking: Looker, reasons: Counter[str]) -> tuple[Refusals, ...]:
    """The same in the looker's language, the commonest first."""
    said: Counter[str] = Counter()
    for key, n in reasons.items():
        reason, _, state = key.partition(" ")
        said[_why(looking, reason, state)] += n
    return _listed(said)


def _listed(said: Counter[str]) -> tuple[Refusals, ...]:
    return tuple(Refusals(why, n) for why, n in said.most_common())


def _why(looking: Looker, reason: str, state: str = "") -> str:
    if reason == "state" and state:
        return looking.say("already %(state)s", state=state)
    return looking.say(WHY[reason]) if reason in WHY else reason.replace("_", " ")
