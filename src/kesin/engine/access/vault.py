"""Sealed credentials that only workers read: no command and no HTTP response shows them."""

import re
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Final, Literal

from kesin.engine.access.accounts import Accounts
from kesin.engine.validation import invalid_field
from kesin.foundation.encryption import KeyRing, NoSecretKeys, SecretNotOpened, sealing_key_id
from kesin.foundation.permissions import Actor, system_actor
from kesin.foundation.problems import NotFound
from kesin.store.directory import Directory, Secret

_SECRET_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
_MAX_ATTEMPTS: Final = 5  # to reseal a secret that keeps changing
_WORKER: Final = system_actor("worker")

ResealOutcome = Literal["resealed", "current", "gone", "busy"]


@dataclass(frozen=True, slots=True)
class UnopenedSecret:
    """A secret that could not be opened, and why."""

    name: str
    key: str | None
    code: str


@dataclass(frozen=True, slots=True)
class Rotation:
    """The result of a key rotation."""

    resealed: int
    current: int  # under the first key already
    busy: int  # kept changing meanwhile: run it again
    unopened: tuple[UnopenedSecret, ...]

    @property
    def complete(self) -> bool:
        """Whether only the first key is needed from now on."""
        return not self.busy and not self.unopened


class Vault:
    """The sealed secrets, with permission checks. ``ring`` is None if no key is configured."""

    def __init__(self, accounts: Accounts, ring: KeyRing | None) -> None:
        self._accounts = accounts
        self._directory = accounts.directory
        self._ring = ring
        self._audited: dict[str, str] = {}

    def keys(self) -> KeyRing:
        """The key ring; raises NoSecretKeys, whose message says what to set."""
        if self._ring is None:
            raise NoSecretKeys
        return self._ring

    def put(self, actor: Actor, name: str, value: str) -> None:
        """Store a value under a name; it replaces the previous value."""
        self._accounts.require(actor, "admin", "secret.put", target=name)
        ring = self.keys()
        _check_name(name)
        if not value:
            raise invalid_field("value", "a secret cannot be empty")
        sealed = ring.seal(name, value)
        with self._directory.transaction():
            self._directory.put_secret(Secret(name, sealed, self._accounts.now(), actor.name))
            self._accounts.note(actor, "secret.put", target=name, details={"key": ring.first})

    def get(self, name: str) -> str:
        """The value, for a worker; audited once per vault: lines for each job would bury others."""
        ring = self.keys()
        _check_name(name)
        secret = self._directory.secret(name)
        if secret is None:
            raise NotFound("there is no secret %(name)s", name=repr(name))
        try:
            value = ring.open(name, secret.sealed)
        except SecretNotOpened as problem:
            self._audit_read(secret, problem.code)
            raise
        self._audit_read(secret)
        return value

    def drop(self, actor: Actor, name: str) -> None:
        """Delete a secret; raises NotFound. Needs no key: an unreadable secret can be deleted."""
        self._accounts.require(actor, "admin", "secret.drop", target=name)
        _check_name(name)
        with self._directory.transaction():
            if not self._directory.delete_secret(name):
                raise NotFound("there is no secret %(name)s", name=repr(name))
            self._accounts.note(actor, "secret.drop", target=name)

    def rotate(self, actor: Actor) -> Rotation:
        """Reseal all with the first key, unless put meanwhile; it may run twice or be repeated."""
        self._accounts.require(actor, "admin", "secret.rotate")
        ring = self.keys()
        outcomes: Counter[ResealOutcome] = Counter()
        unopened = []
        for secret in self._directory.secrets():
            try:
                outcomes[self._reseal(actor, ring, secret)] += 1
            except SecretNotOpened as problem:
                key = problem.details.get("key", sealing_key_id(secret.sealed))
                unopened.append(UnopenedSecret(secret.name, key, problem.code))
        rotation = Rotation(outcomes["resealed"], outcomes["current"], outcomes["busy"], tuple(unopened))
        details = {"key": ring.first, **asdict(rotation), "unopened": len(unopened)}
        self._accounts.note(actor, "secret.rotate", details=details)
        return rotation

    def _reseal(self, actor: Actor, ring: KeyRing, first_read: Secret) -> ResealOutcome:
        secret: Secret | None = first_read
        for _ in range(_MAX_ATTEMPTS):
            if secret is None:
                return "gone"
            value = ring.open(secret.name, secret.sealed)
            before = sealing_key_id(secret.sealed)
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

    def _audit_read(self, secret: Secret, problem: str | None = None) -> None:
        if self._audited.get(secret.name) == secret.sealed:
            return
        self._audited[secret.name] = secret.sealed
        details = {"key": sealing_key_id(secret.sealed)} | ({"problem": problem} if problem else {})
        self._accounts.note(_WORKER, "secret.get", target=secret.name, details=details)


def unopened_secrets(directory: Directory, ring: KeyRing | None) -> list[str]:
    """The names of sealed secrets that these keys cannot open."""
    secrets, unopened = directory.secrets(), []
    if ring is None:
        return [secret.name for secret in secrets]
    for secret in secrets:
        try:
            ring.open(secret.name, secret.sealed)
        except SecretNotOpened:
            unopened.append(secret.name)
    return unopened


def _check_name(name: str) -> None:
    """Raise Invalid for a bad name, without showing it: it may be a value in the wrong field."""
    if not _SECRET_NAME.fullmatch(name):
        raise invalid_field(
            "name",
            "a secret's name must have up to 128 letters, digits, '.', '_', ':', '/', '@' or '-', "
            "and begin with a letter or digit",
        )
