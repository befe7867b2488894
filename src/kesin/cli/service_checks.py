"""What `kesin doctor` looks at for the service: packages, the key ring, who can come in."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from kesin.foundation.settings import BadSettings, Settings, masked

if TYPE_CHECKING:
    from kesin.cli.checks import Check
    from kesin.store.contract import Pause, Store

PACKAGES: Final = ("argon2", "cryptography", "fastapi", "jinja2", "prometheus_client", "uvicorn")


def packages() -> Check:
    """Whether `kesin serve` can start at all."""
    from kesin.cli.checks import Check

    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        remedy = "pip install 'kesin[web]', if `kesin serve` is to run here"
        return Check("web packages", "warning", f"without {', '.join(missing)}", remedy)
    return Check("web packages", "ok", "installed")


def ring(settings: Settings) -> Check:
    """Whether secrets can be sealed."""
    from kesin.cli.checks import Check
    from kesin.foundation.secrets import key_ring

    try:
        keys = key_ring(settings)
    except BadSettings as problem:
        return Check("secret keys", "failure", str(problem), "correct KESIN_SECRET_KEYS")
    if keys is None:
        return Check("secret keys", "ok", "not set: no credentials can be kept here")
    return Check("secret keys", "ok", f"new secrets are sealed with {keys.first}")


def redis(store: Store) -> Iterator[Check]:
    """Whether the Redis of the PDFs answers, and keeps what it is given."""
    from kesin.cli.checks import Check
    from kesin.store.contract import StoreUnreachable
    from kesin.store.stores import Stores

    if not isinstance(store, Stores):
        return
    for one in store.others:
        try:
            health = one.health()
        except StoreUnreachable as problem:
            remedy = "start it, or correct KESIN_REDIS_URL: PDFs wait until then"
            yield Check("redis", "failure", masked(str(problem)), remedy)
            continue
        yield Check("redis", "ok", f"{health['version']}, {health['bytes']} bytes")
        if health["append_only"] != "yes":
            remedy = "set appendonly yes: jobs since the last snapshot are lost in a crash"
            yield Check("redis persistence", "warning", "no append-only file", remedy)
        if health["eviction"] != "noeviction":
            remedy = "set maxmemory-policy noeviction: else Redis drops jobs when it is full"
            yield Check("redis eviction", "failure", str(health["eviction"]), remedy)


def pauses(store: Store, queue: str) -> list[Pause]:
    """What is paused there, if anybody can say."""
    from kesin.store.contract import StoreUnreachable

    try:
        return store.paused(queue)
    except StoreUnreachable:  # told above
        return []


def people(settings: Settings, store: Store) -> Iterator[Check]:
    """Who can sign in, and whether every sealed secret opens."""
    from kesin.cli.checks import Check
    from kesin.engine.accounts import Accounts
    from kesin.engine.vault import Vault
    from kesin.foundation.access import system
    from kesin.foundation.secrets import key_ring
    from kesin.store.directory import Directory

    accounts = Accounts(Directory(store))
    doctor = system("doctor")
    users, keys = len(accounts.people(doctor)), len(accounts.keys(doctor))
    found = f"{users} users, {keys} keys"
    if accounts.anybody():
        yield Check("access", "ok", found)
    else:
        remedy = "`kesin user add NAME --role admin`, or let the first `kesin serve` make one"
        yield Check("access", "warning", f"nobody can sign in ({found})", remedy)
    try:
        vault = Vault(accounts, key_ring(settings))
    except BadSettings:
        return
    shut = [one.name for one in vault.names(doctor) if not one.opens]
    if shut:
        remedy = "put their key back into KESIN_SECRET_KEYS, or put the secrets again"
        yield Check("secrets", "failure", f"cannot be opened: {', '.join(shut)}", remedy)
