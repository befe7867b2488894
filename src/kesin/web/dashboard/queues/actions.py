"""What an operator does with many jobs at once: foreseen exactly, done once, told exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kesin.engine.access.commands import Selection
from kesin.engine.queue import Bulk, Queue
from kesin.foundation.ids import is_id
from kesin.foundation.problems import Invalid
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.vocabulary import STAY
from kesin.store.records import Filter, Outcome
from kesin.web.dashboard.frame.page import PageContext
from kesin.web.dashboard.queues.filters import Fields, Meant, Wanted, meant, named, wanted_of

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


def offers(looking: PageContext, queue: Queue) -> list[Offer]:
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


def _moving_calls(looking: PageContext, queue: Queue) -> tuple[str, ...]:
    """Calls that take a job elsewhere; one that only marks it belongs to its trade's own page."""
    calls = queue.lifecycle.calls
    return tuple(
        call
        for call in looking.service.commands.offered(queue)
        if any(move.to != STAY for move in calls[call])
    )


def label_of(looking: PageContext, call: str) -> str:
    """The call in a word or two."""
    if call in WORDS:
        return looking.say(WORDS[call][0])
    return call.replace("_", " ").capitalize()


def button_of(looking: PageContext, call: str, n: int, shown: str) -> str:
    """The call and how many rows it is about."""
    if call not in WORDS:
        return f"{label_of(looking, call)} ({shown})"
    _, one, many = WORDS[call]
    return looking.say(one) if n == 1 else looking.say(many, n=shown)


def selected(looking: PageContext, queue: Queue, fields: Fields) -> Selected:
    """Read a selection from a form: picked ids, or all that match the filter."""
    until = until_of(queue, next(iter(fields.get("until", ())), ""))
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


def until_of(queue: Queue, given: str) -> int:
    """Births from this time on were not foreseen: when the sheet was made, or now."""
    now = queue.now()
    return min(int(given), now + 1) if given.isdecimal() and len(given) < 20 else now + 1  # noqa: PLR2004


def call_of(looking: PageContext, queue: Queue, fields: Fields) -> str:
    """The call a form names; raises Invalid for what no operator can ask of this queue."""
    call = next(iter(fields.get("call", ())), "")
    if call not in _moving_calls(looking, queue):
        raise Invalid(f"{call!r} is no operator call of {queue.name}", code="unknown_call")
    return call


# Before


def preview(
    looking: PageContext,
    queue: Queue,
    call: str,
    chosen: Selected,
    options: frozenset[str] = frozenset(),
) -> Preview:
    """What the call would do with each of them, judged by the store as it will judge the call."""
    ids = _ids(looking, queue, chosen)
    found = looking.service.commands.would(
        looking.actor,
        queue.name,
        call,
        ids=ids,
        where=chosen.sought.where if ids is None else None,
        options=options,
    )
    gone = 0 if ids is None or chosen.every else len(ids) - found.matched
    return Preview(found.matched + gone, found.moving, refusals(looking, found, gone))


def refusals(looking: PageContext, found: Selection, gone: int = 0) -> tuple[Refusals, ...]:
    """Why those that will not move stay, the commonest first; ``gone`` are not there at all."""
    reasons = Counter({"unknown": gone} if gone else {})
    for (state, reason), n in found.staying.items():
        reasons[f"state {state}" if reason in {"state", "already"} else reason] += n
    return in_words(looking, reasons)


def _ids(looking: PageContext, queue: Queue, chosen: Selected) -> tuple[str, ...] | None:
    """The jobs that are meant by name, as far as they are in a state that is meant."""
    ids, states = chosen.sought.ids, chosen.sought.where.states
    if ids is None or not states:
        return ids
    return tuple(job.id for job in named(looking, queue.name, ids, states))


# Doing


def act(
    looking: PageContext,
    queue: Queue,
    call: str,
    chosen: Selected,
    *,
    reason: str | None,
    options: frozenset[str],
) -> Bulk:
    """Do it, while somebody waits."""
    ids = _ids(looking, queue, chosen)
    return looking.service.commands.act(
        looking.actor,
        queue.name,
        call,
        ids=ids,
        where=chosen.sought.where if ids is None else None,
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


def told(looking: PageContext, bulk: Bulk) -> Told:
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


def in_words(looking: PageContext, reasons: Counter[str]) -> tuple[Refusals, ...]:
    """The same in the looker's language, the commonest first."""
    said: Counter[str] = Counter()
    for key, n in reasons.items():
        reason, _, state = key.partition(" ")
        said[_why(looking, reason, state)] += n
    return _listed(said)


def _listed(said: Counter[str]) -> tuple[Refusals, ...]:
    return tuple(Refusals(why, n) for why, n in said.most_common())


def _why(looking: PageContext, reason: str, state: str = "") -> str:
    if reason == "state" and state:
        return looking.say("already %(state)s", state=state)
    return looking.say(WHY[reason]) if reason in WHY else reason.replace("_", " ")
