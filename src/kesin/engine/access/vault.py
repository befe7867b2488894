"""Credentials that workers need, kept sealed: put and dropped by admins, never shown to anybody.

There is no command that prints a value: who lost one puts a new one. Workers read them here, in
the process that holds the keys; nothing hands them out over HTTP. A change and its line in the
audit log are kept together or not at all.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal

from kesin.engine.access.accounts import Accounts
from kesin.foundation.encryption import KeyRing, NoKeys, NotOpened, key_of
from kesin.foundation.permissions import Actor, system
from kesin.foundation.problems import Invalid, Unknown
from kesin.store.directory import Secret

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
_TRIES: Final = 5  # for one secret that changes while it is resealed
_WORKER: Final = system("worker")

Ending = Literal["resealed", "current", "gone", "busy"]


@dataclass(frozen=True, slots=True)
class Listed:
    """What may be known of a secret."""

    name: str
    changed_at: int
    changed_by: str
    key: str | None  # id of the key it is sealed with; None if it is no sealed text at all
    opens: bool  # whether that key is in the ring


@dataclass(frozen=True, slots=True)
class Unopened:
    """A secret that was left as it is, and why."""

    name: str
    key: str | None
    code: str


@dataclass(frozen=True, slots=True)
class Rotation:
    """What became of the secrets that were there."""

    resealed: int
    current: int  # under the first key already
    busy: int  # changed again and again meanwhile: run it once more
    unopened: tuple[Unopened, ...]

    @property
    def complete(self) -> bool:
        """Whether only the first key is needed from now on."""
        return not self.busy and not self.unopened


class Vault:
    """Sealed secrets, and who may change them. ``ring`` is None where no key is configured."""

    def __init__(self, accounts: Accounts, ring: KeyRing | None) -> None:
        self._accounts = accounts
        self._directory = accounts.directory
        self._ring = ring
        self._noted: dict[str, str] = {}

    def keys(self) -> KeyRing:
        """The ring; raises NoKeys, which says what to set."""
        if self._ring is None:
            raise NoKeys
        return self._ring

    def put(self, actor: Actor, name: str, value: str) -> None:
        """Keep a value under a name, in the place of the one before."""
        self._accounts.require(actor, "admin", "secret.put", target=name)
        ring = self.keys()
        _check_name(name)
        if not value:
            raise Invalid("a secret cannot be empty", details={"field": "value"})
        sealed = ring.seal(name, value)
        with self._directory.transaction():
            self._directory.put_secret(Secret(name, sealed, self._accounts.now(), actor.name))
            self._accounts.note(actor, "secret.put", target=name, details={"key": ring.first})

    def get(self, name: str) -> str:
        """The value, for the worker that needs it; raises Unknown, NoKeys or NotOpened.

        The audit log is told the first time this vault reads each sealed value, not every time: a
        line for each job would bury all others.
        """
        ring = self.keys()
        _check_name(name)
        secret = self._directory.secret(name)
        if secret is None:
            raise Unknown(f"there is no secret {name!r}: put it with `kesin secrets put {name}`")
        try:
            value = ring.open(name, secret.sealed)
        except NotOpened as problem:
            self._note_reading(secret, problem.code)
            raise
        self._note_reading(secret)
        return value

    def names(self, actor: Actor) -> list[Listed]:
        """Every secret without its value."""
        self._accounts.require(actor, "admin", "secret.list")
        known = self._ring.ids if self._ring else ()
        listed = [
            Listed(one.name, one.changed_at, one.changed_by, key, key in known)
            for one in self._directory.secrets()
            for key in (key_of(one.sealed),)
        ]
        self._accounts.note(actor, "secret.list")
        return listed

    def drop(self, actor: Actor, name: str) -> None:
        """Forget a secret; raises Unknown. Needs no key: what cannot be opened can be dropped."""
        self._accounts.require(actor, "admin", "secret.drop", target=name)
        _check_name(name)
        with self._directory.transaction():
            if not self._directory.drop_secret(name):
                raise Unknown(f"there is no secret {name!r}")
            self._accounts.note(actor, "secret.drop", target=name)

    def rotate(self, actor: Actor) -> Rotation:
        """Reseal under the first key whatever is under another, and try whether all can be opened.

        A secret is replaced only if it is still the one that was opened, so that a value put
        meanwhile stays; it can run twice, at once and again after a crash.
        """
        self._accounts.require(actor, "admin", "secret.rotate")
        ring = self.keys()
        endings: Counter[Ending] = Counter()
        unopened = []
        for secret in self._directory.secrets():
            try:
                endings[self._reseal(actor, ring, secret)] += 1
            except NotOpened as problem:
                key = problem.details.get("key", key_of(secret.sealed))
                unopened.append(Unopened(secret.name, key, problem.code))
        done = Rotation(endings["resealed"], endings["current"], endings["busy"], tuple(unopened))
        counts = {
            "key": ring.first,
            "resealed": done.resealed,
            "current": done.current,
            "busy": done.busy,
            "unopened": len(unopened),
        }
        self._accounts.note(actor, "secret.rotate", details=counts)
        return done

    def _reseal(self, actor: Actor, ring: KeyRing, found: Secret) -> Ending:
        secret: Secret | None = found
        for _ in range(_TRIES):
            if secret is None:
                return "gone"
            value = ring.open(secret.name, secret.sealed)
            before = key_of(secret.sealed)
            if before == ring.first:
                return "current"
            sealed = ring.seal(secret.name, value)
            with self._directory.transaction():
                if self._directory.reseal(secret.name, secret.sealed, sealed):
                    keys = {"key": ring.first, "before": before}
                    self._accounts.note(actor, "secret.reseal", target=secret.name, details=keys)
                    return "resealed"
            secret = self._directory.secret(secret.name)
        return "busy"

    def _note_reading(self, secret: Secret, problem: str | None = None) -> None:
        if self._noted.get(secret.name) == secret.sealed:
            return
        self._noted[secret.name] = secret.sealed
        details = {"key": key_of(secret.sealed)} | ({"problem": problem} if problem else {})
        self._accounts.note(_WORKER, "secret.get", target=secret.name, details=details)


def _check_name(name: str) -> None:
    """Raise Invalid for a bad name, without telling it: it may be a value in the wrong place."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            "a secret's name has 1…128 letters, digits, '.', '_', ':', '/', '@' and '-', "
            "and begins with a letter or a digit",
            details={"field": "name"},
        )
