"""A site's circuit breaker: while its connection to Google fails, its rows stay queued.

Three kinds of trouble open it. Transient trouble opens it after five failures in a row; later it
lets a few rows through as a probe. A rate limit opens it until the time Google named. Wrong
credentials open it at once, and no row is spent on a probe: it closes when a check that records
nothing passes. New credentials close it, whatever opened it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Self

from kesin.foundation.logs import Logger
from kesin.foundation.messages import Message, parts_of, restore
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Problem
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.oci.google.channel import ConnectionTrouble, TroubleKind
from kesin.workloads.oci.google.credentials import GoogleCredentials, vault_name
from kesin.workloads.oci.site import BREAKER, WORKLOAD, SiteContext

log = Logger("kesin.oci")

WORKER_ACTOR: Final = "oci-worker"
FAILURES_TO_OPEN: Final = 5  # in a row
OPEN_S: Final = 300
JITTER_S: Final = 60
PROBE_ROWS: Final = 5
MAX_CHECK_PAUSE_S: Final = 3_600  # between checks of credentials
MAX_OPEN_S: Final = 86_400  # even if Google names a longer time

Trouble = ConnectionTrouble | None
BreakerState = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of a site's connection; ``probe_at`` is the time of the next probe or check."""

    failures: int = 0
    kind: TroubleKind | Literal[""] = ""  # why it is open; "" while closed
    code: str = ""
    message: str = ""
    opened_at: int | None = None
    probe_at: int | None = None
    checks: int = 0  # of credentials, including the one that opened it

    @classmethod
    def from_dict(cls, stored: dict[str, Any] | None) -> Self:
        """Read the stored breaker; None is a closed one."""
        names, stored = cls.__dataclass_fields__, stored or {}
        breaker = cls(**{name: value for name, value in stored.items() if name in names})
        return replace(breaker, message=restore(breaker.message, stored))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | parts_of(self.message)

    def state(self, now: int) -> BreakerState:
        """Open until ``probe_at``, then half open; after wrong credentials never half open."""
        if not self.kind:
            return "closed"
        if self.kind == "AUTH" or self.probe_at is None or now < self.probe_at:
            return "open"
        return "half_open"

    def max_rows(self, now: int, limit: int) -> int:
        return {"closed": limit, "half_open": min(PROBE_ROWS, limit), "open": 0}[self.state(now)]

    def wants_check(self, now: int) -> bool:
        """Whether to check the credentials now, without rows."""
        return self.kind == "AUTH" and (self.probe_at is None or now >= self.probe_at)


def next_breaker(breaker: Breaker, trouble: Trouble, now: int, jitter: float) -> Breaker:
    """The breaker after an upload (``jitter``: 0…1); wrong credentials keep it open."""
    if breaker.kind == "AUTH" and (trouble is None or trouble.kind != "AUTH"):
        return breaker  # only `close_breaker` closes it
    if trouble is None:
        return Breaker()
    error: dict[str, Any] = {"code": trouble.code, "message": trouble.message}
    if trouble.kind == "AUTH":
        first = breaker if breaker.kind == "AUTH" else Breaker(opened_at=now)
        pause_s = min(OPEN_S * 2**first.checks, MAX_CHECK_PAUSE_S) + JITTER_S * jitter
        probe_at, checks = now + round(pause_s * SECOND_US), min(first.checks + 1, 10)
        return replace(first, kind="AUTH", **error, probe_at=probe_at, checks=checks)
    failures, asked_s = breaker.failures + 1, trouble.retry_after_s
    if asked_s is None and failures < FAILURES_TO_OPEN and not breaker.kind:
        return replace(breaker, failures=failures, **error)
    pause_s = OPEN_S + JITTER_S * jitter if asked_s is None else min(asked_s, MAX_OPEN_S)
    error |= {"opened_at": breaker.opened_at or now, "probe_at": now + round(pause_s * SECOND_US)}
    return Breaker(failures, trouble.kind, **error)


def open_credentials(site: SiteContext) -> GoogleCredentials | ConnectionTrouble:
    """Open the site's sealed credentials, with one of its actions, or return the trouble."""
    name = vault_name(site.id)
    if site.context.commands.accounts.directory.secret(name) is None:
        why = "there are no credentials: store them with `kesin oci credentials %(site)s`"
        return ConnectionTrouble("AUTH", "CREDENTIALS_MISSING", Message(why, site=site.id))
    try:
        credentials = GoogleCredentials.parse(json.loads(site.context.vault.get(name)))
    except (Problem, ValueError) as problem:
        log.warning("credentials_unreadable", site=site.id, why=type(problem).__name__)
        why = "credentials cannot be read: check KESIN_SECRET_KEYS, or enter the credentials again"
        return ConnectionTrouble("AUTH", "CREDENTIALS_UNREADABLE", why)
    tried = sorted(site.settings.actions, key=lambda action: not action.default)[:1]
    name = credentials.resource_name(tried[0] if tried else None)
    return replace(credentials, conversion_action_resource_name=name)


def seal_credentials(site: SiteContext, actor: Actor, document: Mapping[str, Any]) -> None:
    """Seal the site's credentials; the breaker closes, as it opened with other ones."""
    credentials = GoogleCredentials.parse(document)
    with site.context.commands.accounts.kept_site(site.id):
        site.context.vault.put(actor, vault_name(site.id), credentials.to_text())
        close_breaker(site, actor.name)


def read_breaker(site: SiteContext) -> Breaker:
    return Breaker.from_dict(site.read_metadata(breaker_name(site.queue.name)))


def breaker_name(queue: str) -> str:
    """The metadata of a queue's breaker: adjustments that fail do not stop conversions."""
    return BREAKER if queue == WORKLOAD else f"{BREAKER}:{queue}"


def record_upload(site: SiteContext, trouble: Trouble, *, jitter: float = 0.5) -> Breaker:
    return _update_breaker(site, lambda before, now: next_breaker(before, trouble, now, jitter))


def close_breaker(site: SiteContext, actor: str = WORKER_ACTOR) -> Breaker:
    """Close the breaker: the credentials changed, or a check of them passed."""
    return _update_breaker(site, lambda _before, _now: Breaker(), actor)


def _update_breaker(site: SiteContext, step: Callable[[Breaker, int], Breaker], actor: str = WORKER_ACTOR) -> Breaker:
    now, unlocked = site.queue.now(), read_breaker(site)
    if step(unlocked, now) == unlocked:
        return unlocked
    with site.locked_metadata(breaker_name(site.queue.name)) as stored:
        before = Breaker.from_dict(stored)
        breaker = step(before, now)
        stored.clear()
        stored.update(breaker.to_dict())
        is_open = bool(breaker.kind)
        flipped = is_open != bool(before.kind)
        if flipped:
            site.note_event("breaker", actor, open=is_open, code=breaker.code)
    if flipped:
        log.warning("breaker_changed", site=site.id, open=is_open, code=breaker.code)
    return breaker
