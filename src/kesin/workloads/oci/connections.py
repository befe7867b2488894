"""A site's connection to Google: its credentials, and the breaker that says whether it is used."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from kesin.foundation.logs import Logger
from kesin.foundation.problems import Problem
from kesin.foundation.text import canonical_json
from kesin.store.directory import Fact, Site
from kesin.workloads.oci.breaker import Breaker, after
from kesin.workloads.oci.channel import Trouble
from kesin.workloads.oci.credentials import Credentials, vault_name
from kesin.workloads.oci.places import BREAKER, WORKLOAD, fact
from kesin.workloads.workload import House

log = Logger("kesin.oci")

ACTOR: Final = "oci-worker"


def opened(house: House, site: Site) -> Credentials | Trouble:
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


def breaker_of(house: House, site: Site) -> Breaker:
    """How the connection was when it was last used."""
    return Breaker.of(fact(house, site, BREAKER))


def tell(house: House, site: Site, trouble: Trouble | None, *, chance: float = 0.5) -> Breaker:
    """Let the breaker know how an upload went; what it is from now on."""
    if trouble is None and breaker_of(house, site) == Breaker():
        return Breaker()
    return _turn(house, site, lambda before, now: after(before, trouble, now, chance))


def close(house: House, site: Site) -> Breaker:
    """The credentials changed, or a check of them passed."""
    return _turn(house, site, lambda _before, _now: Breaker())


def _turn(house: House, site: Site, step: Callable[[Breaker, int], Breaker]) -> Breaker:
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
