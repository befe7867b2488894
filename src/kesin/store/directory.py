"""Sites, people, sessions, keys, the audit log, sealed secrets and facts: the small tables.

Nothing here decides anything: who may do what is `foundation/permissions.py`, and every command
comes through `engine/access/commands.py`. Only hashes of passwords, sessions and keys are stored.
"""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, cast

from kesin.foundation.text import storable
from kesin.store.contract import Store
from kesin.store.errors import StoreError
from kesin.store.sql.reader import like
from kesin.store.sql.store import SqlStore

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_TABLE = re.compile(r"\{(\w+)\}")
_PARAM = re.compile(r"(?<!:):([a-z_]+)")
LAST = (1 << 63) - 1
PRUNE_BATCH = 10_000
SEARCHED = 100_000  # audit lines one search by part of a word looks through


class Site(NamedTuple):
    """A client's site: the tenant its jobs carry."""

    id: str
    name: str
    channel: str  # script, api or data_manager
    timezone: str
    currency: str
    settings: str  # JSON, whatever its workloads keep there
    created_at: int
    changed_at: int


class Person(NamedTuple):
    """Somebody who signs in."""

    name: str
    password_hash: str
    role: str
    all_sites: bool
    sites: tuple[str, ...]
    queues: tuple[str, ...]
    created_at: int
    changed_at: int
    disabled_at: int | None = None


class Session(NamedTuple):
    """A person who is signed in; the cookie's value is only known by its hash."""

    token_hash: str
    person: str
    created_at: int
    used_at: int
    expires_at: int
    address: str


class ApiKey(NamedTuple):
    """A machine's key, without the key."""

    id: str
    secret_hash: str
    name: str
    scopes: tuple[str, ...]
    site: str | None
    created_at: int
    created_by: str
    expires_at: int | None = None
    used_at: int | None = None
    revoked_at: int | None = None


class AuditLine(NamedTuple):
    """Somebody asked for something, and was let or not."""

    id: int
    at: int
    actor: str
    action: str
    allowed: bool
    queue: str | None = None
    site: str | None = None
    target: str | None = None
    details: str | None = None  # JSON
    request_id: str | None = None
    address: str | None = None


class AuditFound(NamedTuple):
    """What a search found, and where the next one goes on; None: there is nothing older."""

    lines: list[AuditLine]
    before: int | None


class Secret(NamedTuple):
    """A sealed value; `foundation/encryption.py` opens it."""

    name: str
    sealed: str
    changed_at: int
    changed_by: str


class Fact(NamedTuple):
    """Something a workload knows about a site, or with '' about all of them."""

    workload: str
    site: str
    name: str
    value: str  # JSON
    changed_at: int


class Directory:
    """The small tables beside a store's jobs."""

    def __init__(self, store: Store) -> None:
        store = store.home("")
        if not isinstance(store, SqlStore):
            raise StoreError("people and keys are kept in SQLite or PostgreSQL")
        self._store = store

    def transaction(self) -> AbstractContextManager[Any]:
        """All calls inside the block are kept together, or none is."""
        return self._store.transaction()

    # Sites

    def sites(self) -> list[Site]:
        return [Site._make(row) for row in self._read("sites", id=None)]

    def site(self, site_id: str) -> Site | None:
        rows = self._read("sites", id=site_id)
        return Site._make(rows[0]) if rows else None

    def hold_site(self, site_id: str) -> Site | None:
        """The site, which nobody else changes until the transaction ends."""
        rows = self._rows("hold_site", id=site_id)
        return Site._make(rows[0]) if rows else None

    def add_site(self, site: Site) -> bool:
        """Whether it is new."""
        return self._write("add_site", **site._asdict())

    def change_site(self, site: Site) -> bool:
        return self._write("change_site", **_without(site, "created_at"))

    # People

    def people(self) -> list[Person]:
        return [_person(row) for row in self._read("people", name=None)]

    def person(self, name: str) -> Person | None:
        rows = self._read("people", name=name)
        return _person(rows[0]) if rows else None

    def hold_person(self, name: str) -> Person | None:
        """The person, whom nobody else changes until the transaction ends."""
        rows = self._rows("hold_person", name=name)
        return _person(rows[0]) if rows else None

    def add_person(self, person: Person) -> bool:
        """Whether the name was free."""
        return self._write("add_person", **_spelled(person))

    def change_person(self, person: Person) -> bool:
        told = _spelled(person)
        del told["created_at"]
        return self._write("change_person", **told)

    # Sessions

    def session(self, token_hash: str) -> Session | None:
        rows = self._read("session", token_hash=token_hash)
        return Session._make(rows[0]) if rows else None

    def sessions_of(self, person: str) -> list[Session]:
        return [Session._make(row) for row in self._read("sessions_of", person=person)]

    def add_session(self, session: Session) -> None:
        self._write("add_session", **session._asdict())

    def use_session(self, token_hash: str, now: int) -> None:
        self._write("use_session", token_hash=token_hash, used_at=now)

    def end_session(self, token_hash: str) -> bool:
        return self._write("end_session", token_hash=token_hash)

    def end_sessions_of(self, person: str) -> int:
        return len(self._rows("end_sessions_of", person=person))

    def end_old_sessions(self, now: int, idle_since: int) -> int:
        return len(self._rows("end_old_sessions", now=now, idle_since=idle_since))

    # Keys

    def api_keys(self) -> list[ApiKey]:
        return [_key(row) for row in self._read("keys", id=None)]

    def api_key(self, key_id: str) -> ApiKey | None:
        rows = self._read("keys", id=key_id)
        return _key(rows[0]) if rows else None

    def add_key(self, key: ApiKey) -> bool:
        return self._write("add_key", **_spelled(key))

    def use_key(self, key_id: str, now: int) -> None:
        self._write("use_key", id=key_id, used_at=now)

    def revoke_key(self, key_id: str, now: int) -> bool:
        """Whether it was valid until now."""
        return self._write("revoke_key", id=key_id, revoked_at=now)

    # The audit log

    def add_audit(self, line: AuditLine) -> None:
        self._write("add_audit", **_without(line, "id") | {"allowed": int(line.allowed)})

    def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        queue: str | None = None,
        site: str | None = None,
        target: str | None = None,
        before: int = LAST,
        limit: int = 100,
    ) -> list[AuditLine]:
        """The newest lines that fit, before a line already seen."""
        rows = self._read(
            "audit",
            actor=actor,
            action=action,
            queue=queue,
            site=site,
            target=target,
            before=before,
            limit=limit,
        )
        return [_audit_line(row) for row in rows]

    def search_audit(
        self, *, queue: str | None = None, before: int = LAST, limit: int = 100, **parts: str
    ) -> AuditFound:
        """The newest lines whose actor, action, site or target have these parts in them.

        No index finds a part of a word: a search looks through so many lines and says where it
        stopped, whether it found enough or not.
        """
        newest = self._read("newest_audit", before=before)[0][0]
        if newest is None:
            return AuditFound([], None)
        since = max(newest - SEARCHED + 1, 0)
        names = ("actor", "action", "site", "target")
        wanted = {
            name: f"%{like(parts[name].lower())}%" if name in parts else None for name in names
        }
        rows = self._read(
            "search_audit", **wanted, queue=queue, before=before, since=since, limit=limit + 1
        )
        lines = [_audit_line(row) for row in rows[:limit]]
        if len(rows) > limit:
            return AuditFound(lines, lines[-1].id)
        older = self._read("newest_audit", before=since)[0][0]
        return AuditFound(lines, since if older is not None else None)

    def prune_audit(self, before: int) -> int:
        """Drop old lines, some at a time; how many."""
        return len(self._rows("prune_audit", before=before, limit=PRUNE_BATCH))

    # Sealed secrets

    def secrets(self) -> list[Secret]:
        return [Secret._make(row) for row in self._read("secrets", name=None)]

    def secret(self, name: str) -> Secret | None:
        rows = self._read("secrets", name=name)
        return Secret._make(rows[0]) if rows else None

    def put_secret(self, secret: Secret) -> None:
        self._write("put_secret", **secret._asdict())

    def reseal(self, name: str, before: str, sealed: str) -> bool:
        """Replace a sealed text by the same secret sealed anew; not if it changed meanwhile."""
        return self._write("reseal", name=name, before=before, sealed=sealed)

    def drop_secret(self, name: str) -> bool:
        return self._write("drop_secret", name=name)

    # Facts

    def facts(
        self, workload: str, *, site: str | None = None, name: str | None = None
    ) -> list[Fact]:
        rows = self._read("facts", workload=workload, site=site, name=name)
        return [Fact._make(row) for row in rows]

    def fact(self, workload: str, site: str, name: str) -> Fact | None:
        found = self.facts(workload, site=site, name=name)
        return found[0] if found else None

    def put_fact(self, fact: Fact) -> None:
        self._write("put_fact", **fact._asdict())

    def hold_fact(self, workload: str, site: str, name: str, now: int) -> Fact:
        """The fact, which nobody else changes until the transaction ends; ``null`` if it is new."""
        rows = self._rows("hold_fact", workload=workload, site=site, name=name, now=now)
        return Fact._make(rows[0])

    def drop_fact(self, workload: str, site: str, name: str) -> bool:
        return self._write("drop_fact", workload=workload, site=site, name=name)

    # Statements

    def _read(self, statement: str, **params: Any) -> list[tuple[Any, ...]]:
        if _matches_nothing(params):
            return []
        return self._store._read(self._sql(statement), params)  # noqa: SLF001  # one floor

    def _rows(self, statement: str, **params: Any) -> list[tuple[Any, ...]]:
        return self._store._rows(self._sql(statement), params)  # noqa: SLF001

    def _write(self, statement: str, **params: Any) -> bool:
        return bool(self._rows(statement, **params))

    def _sql(self, statement: str) -> str:
        dialect = self._store.dialect
        text = _TABLE.sub(lambda gap: dialect.table(gap.group(1)), _statements()[statement])
        return _PARAM.sub(lambda gap: dialect.param(gap.group(1)), text)


@cache
def _statements() -> dict[str, str]:
    text = (files("kesin.store.sql") / "queries" / "directory.sql").read_text("utf-8")
    parts = _NAME.split(text)[1:]
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))


def _matches_nothing(params: dict[str, Any]) -> bool:
    """Text no database keeps is in no row; PostgreSQL would not even take the question."""
    return any(isinstance(one, str) and storable(one) != one for one in params.values())


def _spelled(row: NamedTuple) -> dict[str, Any]:
    """The row as the tables keep it: lists as JSON, flags as numbers."""
    told: dict[str, Any] = row._asdict()
    for name, value in told.items():
        if isinstance(value, tuple):
            told[name] = json.dumps(value)
        elif isinstance(value, bool):
            told[name] = int(value)
    return told


def _without(row: NamedTuple, *names: str) -> dict[str, Any]:
    return {name: value for name, value in row._asdict().items() if name not in names}


def _person(row: tuple[Any, ...]) -> Person:
    found = Person._make(row)
    return found._replace(
        all_sites=bool(found.all_sites), sites=_list(found.sites), queues=_list(found.queues)
    )


def _key(row: tuple[Any, ...]) -> ApiKey:
    found = ApiKey._make(row)
    return found._replace(scopes=_list(found.scopes))


def _audit_line(row: tuple[Any, ...]) -> AuditLine:
    return AuditLine._make((*row[:4], bool(row[4]), *row[5:]))


def _list(text: object) -> tuple[str, ...]:
    return tuple(json.loads(cast("str", text)))
