"""What `kesin doctor` looks at for the service: packages, the key ring, who can come in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final

from kesin.foundation.check import Check
from kesin.foundation.settings import BadSettings, Settings, masked
from kesin.foundation.terminal import counted
from kesin.lifecycle.budget import SECOND_US

if TYPE_CHECKING:
    from kesin.store.contract import Store
    from kesin.store.records import Pause

PARTS: Final = {  # extra → what it is for
    "web": "`kesin serve` is to run",
    "postgres": "the database is a PostgreSQL",
    "redis": "PDFs are to live in Redis",
    "oci": "conversions are to be uploaded to Google",
    "pdf": "PDFs are to be made",
    "s3": "PDFs are to be kept in a bucket",
    "optiplan": "cutting orders are to be worked on",
    "solver": "large cutting plans are to use fewer different boards",
}
BESIDE: Final = ("pdf_batches", "pdf_webhooks")  # RQ sends for nobody there
UNSERVED_S: Final = 60


def packages() -> Iterator[Check]:
    """Which extras are installed; nobody needs all of them, so what is missing is no fault."""
    from kesin.foundation.extras import BRINGS, missing, remedy

    for extra, purpose in PARTS.items():
        if lacking := missing(BRINGS[extra]):
            found, todo = f"without {', '.join(lacking)}", f"{remedy(extra)}, if {purpose} here"
            yield Check(f"extra {extra}", "ok", found, todo)
        else:
            yield Check(f"extra {extra}", "ok", "installed")


def ring(settings: Settings) -> Check:
    """Whether secrets can be sealed."""
    from kesin.foundation.encryption import key_ring

    try:
        keys = key_ring(settings)
    except BadSettings as problem:
        return Check("secret keys", "failure", str(problem), "correct KESIN_SECRET_KEYS")
    if keys is None:
        return Check("secret keys", "ok", "not set: no credentials can be kept here")
    return Check("secret keys", "ok", f"new secrets are sealed with {keys.first}")


def redis(settings: Settings) -> Iterator[Check]:
    """Whether the Redis of the PDFs answers, keeps what it is given, and is worked on."""
    from kesin.store.errors import StoreError
    from kesin.store.open import open_redis

    if not settings.redis_url:
        return
    try:
        with closing(open_redis(settings.redis_url)) as store:
            yield from _kept(store.health())
            if not settings.pdf_processes:
                yield _beside(store)
    except StoreError as problem:
        remedy = "start it, or correct KESIN_REDIS_URL: PDFs wait until then"
        yield Check("redis", "failure", masked(str(problem)), remedy)


def _kept(health: Mapping[str, str | int]) -> Iterator[Check]:
    yield Check("redis", "ok", f"{health['version']}, {health['bytes']} bytes")
    if health["append_only"] != "yes":
        remedy = "set appendonly yes: jobs since the last snapshot are lost in a crash"
        yield Check("redis persistence", "warning", "no append-only file", remedy)
    if health["eviction"] != "noeviction":
        remedy = "set maxmemory-policy noeviction: else Redis drops jobs when it is full"
        yield Check("redis eviction", "failure", str(health["eviction"]), remedy)


def _beside(store: Store) -> Check:
    """RQ sends for those who render; whoever is started for that alone does nothing else."""
    from kesin.cli.support import context

    known = [name for name in BESIDE if name in store.queues()]
    for name in known:
        context.look(store, name)
    told = {name: store.stats(name) for name in known}
    late = [
        name
        for name, one in told.items()
        if one.oldest_due_at is not None and one.now - one.oldest_due_at > UNSERVED_S * SECOND_US
    ]
    both = " and ".join(BESIDE)
    if late:
        found = f"nobody works on {' and '.join(late)}: jobs wait for more than {UNSERVED_S} s"
        return Check(
            "redis workers", "warning", found, f"`kesin worker pdf {' '.join(BESIDE)} --rq`"
        )
    found = f"KESIN_PDF_PROCESSES is 0: {both} need a `kesin worker` elsewhere that names them"
    return Check("redis workers", "ok", found)


def stranded(store: Store) -> dict[str, int]:
    """Queues that live in Redis now, with the jobs that still wait where they lived before."""
    from kesin.cli.support.lifecycles import registry
    from kesin.engine.transfer.copy_pauses import left_behind
    from kesin.store.routed import Stores

    if not isinstance(store, Stores):
        return {}
    main, found = store.main, {}
    for name in sorted(store.homes.keys() & set(main.queues())):
        if left_behind(main, name, ""):  # it was copied: what is there is history
            continue
        working = {one.name for one in registry()[name]().states if one.working}
        found[name] = sum(
            flow.n * ((flow.to_state in working) - (flow.from_state in working))
            for flow in main.flows(name)
        )
    return {name: jobs for name, jobs in found.items() if jobs}


def moved(store: Store) -> Iterator[Check]:
    """Whether jobs were left where nobody looks any more."""
    for name, jobs in stranded(store).items():
        found = f"{jobs} jobs wait in the database, and nobody works on them there"
        remedy = "`kesin store copy DATABASE REDIS` takes them to Redis"
        yield Check(f"{name} before redis", "warning", found, remedy)


def pauses(store: Store, queue: str) -> list[Pause]:
    """What is paused there, if anybody can say."""
    from kesin.store.errors import StoreUnreachable

    try:
        return store.paused(queue)
    except StoreUnreachable:  # told above
        return []


def people(settings: Settings, store: Store) -> Iterator[Check]:
    """Who can sign in, and whether every sealed secret opens."""
    from kesin.engine.access.accounts import Accounts
    from kesin.engine.access.vault import Vault
    from kesin.foundation.encryption import key_ring
    from kesin.foundation.permissions import system
    from kesin.store.directory import Directory

    accounts = Accounts(Directory(store))
    doctor = system("doctor")
    users, keys = len(accounts.people(doctor)), len(accounts.keys(doctor))
    found = f"{counted(users, 'user')}, {counted(keys, 'key')}"
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
