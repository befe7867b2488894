"""One site's circuit breaker: when something is wrong with its connection, its rows stay queued.

Pure: every function takes the breaker and the time and gives the next breaker. Three reasons open
it. Passing trouble opens it after five failures in a row; it then lets a few rows through to try.
A rate limit opens it until the time Google named. Wrong credentials open it at once, and no row is
spent on trying: it closes when they change, or when a check that records nothing passes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, Self

from kesin.engine.workload import WorkloadContext
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Problem
from kesin.foundation.text import canonical_json
from kesin.lifecycle.budget import SECOND_US
from kesin.store.directory import Fact, Site
from kesin.workloads.oci.google.channel import Trouble, TroubleKind
from kesin.workloads.oci.google.credentials import Credentials, vault_name
from kesin.workloads.oci.site import BREAKER, WORKLOAD, fact

FAILURES: Final = 5  # in a row, and it opens
OPEN_S: Final = 300
JITTER_S: Final = 60
PROBE_ROWS: Final = 5
LONGEST_CHECK_S: Final = 3_600  # between checks of credentials
LONGEST_OPEN_S: Final = 86_400  # whatever time Google names

State = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """How a site's connection is. ``probe_at`` is when something is tried next."""

    failures: int = 0
    kind: TroubleKind | Literal[""] = ""  # why it is open
    code: str = ""
    message: str = ""
    opened_at: int | None = None
    probe_at: int | None = None
    checks: int = 0  # of credentials, the one that opened it among them

    @classmethod
    def of(cls, kept: dict[str, Any] | None) -> Self:
        """From what was kept."""
        names = cls.__dataclass_fields__
        return cls(**{name: value for name, value in (kept or {}).items() if name in names})

    def kept(self) -> dict[str, Any]:
        """To be kept."""
        return asdict(self)

    def state(self, now: int) -> State:
        """Open until its time has come; then half open, if rows may try."""
        if not self.kind:
            return "closed"
        if self.kind == "AUTH" or self.probe_at is None or now < self.probe_at:
            return "open"
        return "half_open"

    def rows(self, now: int, most: int) -> int:
        """How many rows may be claimed now."""
        return {"closed": most, "half_open": min(PROBE_ROWS, most), "open": 0}[self.state(now)]

    def wants_check(self, now: int) -> bool:
        """Whether credentials should be tried again, without rows."""
        return self.kind == "AUTH" and (self.probe_at is None or now >= self.probe_at)


def after(breaker: Breaker, trouble: Trouble | None, now: int, chance: float) -> Breaker:
    """The breaker after an upload; ``chance`` in 0…1 spreads what many sites do at once.

    One that wrong credentials opened stays open, whatever an upload that was still under way says:
    it closes by ``Breaker()`` alone, when they changed or a check passed.
    """
    if breaker.kind == "AUTH" and (trouble is None or trouble.kind != "AUTH"):
        return breaker
    if trouble is None:
        return Breaker()
    code, message = trouble.code, trouble.message
    if trouble.kind == "AUTH":
        first = breaker if breaker.kind == "AUTH" else Breaker(opened_at=now)
        pause_s = min(OPEN_S * 2**first.checks, LONGEST_CHECK_S) + JITTER_S * chance
        return replace(
            first,
            kind="AUTH",
            code=code,
            message=message,
            probe_at=now + round(pause_s * SECOND_US),
            checks=min(first.checks + 1, 10),
        )
    failures = breaker.failures + 1
    named = trouble.retry_after_s
    if named is None and failures < FAILURES and not breaker.kind:
        return replace(breaker, failures=failures, code=code, message=message)
    pause_s = OPEN_S + JITTER_S * chance if named is None else min(named, LONGEST_OPEN_S)
    return Breaker(
        failures=failures,
        kind=trouble.kind,
        code=code,
        message=message,
        opened_at=breaker.opened_at or now,
        probe_at=now + round(pause_s * SECOND_US),
    )


log = Logger("kesin.oci")

ACTOR: Final = "oci-worker"


def opened(house: WorkloadContext, site: Site) -> Credentials | Trouble:
    """The site's credentials, or what is wrong with them."""
    name = vault_name(site.id)
    if house.commands.accounts.directory.secret(name) is None:
        told = f"there are no credentials: put them with `kesin oci credentials {site.id}`"
        return Trouble("AUTH", "CREDENTIALS_MISSING", told)
    try:
        return Credentials.opened(house.vault.get(name))
    except (Problem, ValueError) as problem:
        log.warning("credentials_unreadable", site=site.id, why=type(problem).__name__)
        told = "the credentials cannot be opened: look at KESIN_SECRET_KEYS, or put them anew"
        return Trouble("AUTH", "CREDENTIALS_UNREADABLE", told)


def breaker_of(house: WorkloadContext, site: Site) -> Breaker:
    """How the connection was when it was last used."""
    return Breaker.of(fact(house, site, BREAKER))


def tell(
    house: WorkloadContext, site: Site, trouble: Trouble | None, *, chance: float = 0.5
) -> Breaker:
    """Let the breaker know how an upload went; what it is from now on."""
    if trouble is None and breaker_of(house, site) == Breaker():
        return Breaker()
    return _turn(house, site, lambda before, now: after(before, trouble, now, chance))


def close(house: WorkloadContext, site: Site) -> Breaker:
    """The credentials changed, or a check of them passed."""
    return _turn(house, site, lambda _before, _now: Breaker())


def _turn(house: WorkloadContext, site: Site, step: Callable[[Breaker, int], Breaker]) -> Breaker:
    directory, queue = house.commands.accounts.directory, house.queue
    now = queue.now()
    with directory.transaction():
        held = directory.hold_fact(WORKLOAD, site.id, BREAKER, now)
        before = Breaker.of(json.loads(held.value))
        breaker = step(before, now)
        told = canonical_json(breaker.kept())
        directory.put_fact(Fact(WORKLOAD, site.id, BREAKER, told, now))
        turned = bool(breaker.kind) != bool(before.kind)
        if turned:
            details = canonical_json({"open": bool(breaker.kind), "code": breaker.code})
            queue.store.add_note(
                queue.name, kind="breaker", actor=ACTOR, tenant=site.id, details=details
            )
    if turned:
        log.warning("breaker", site=site.id, open=bool(breaker.kind), code=breaker.code)
    return breaker
