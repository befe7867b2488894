"""People, sessions and keys: made, found and ended, each with its line in the audit log.

Whoever comes in becomes an Actor here, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from kesin.engine.access.sites import Sites
from kesin.foundation import passwords
from kesin.foundation.permissions import ROLES, SCOPES, SITE_SCOPES, Actor, Scope
from kesin.foundation.problems import Clash, Invalid, NotSignedIn, Refused, Unknown
from kesin.foundation.text import storable
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.store.directory import ApiKey, Person, Session
from kesin.store.errors import StoreTrouble

SESSION_S: Final = 8 * 3_600  # from sign-in
IDLE_S: Final = 3_600  # from the last request
USED_EVERY_S: Final = 60  # how exact "last used" is
_OF_KEY: Final = "key:"  # no person's name has a colon
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class Accounts(Sites):
    """Everybody who may come in, and what they did."""

    # People

    def people(self, actor: Actor) -> list[Person]:
        self.require(actor, "admin", "user.list")
        return self.directory.people()

    def person(self, actor: Actor, name: str) -> Person:
        self.require(actor, "admin", "user.show", target=name)
        return self._known_person(self.directory.person(name), name)

    def add_person(
        self,
        actor: Actor,
        name: str,
        password: str,
        *,
        role: str = "viewer",
        all_sites: bool = False,
        sites: Iterable[str] = (),
        queues: Iterable[str] = (),
    ) -> Person:
        self.require(actor, "admin", "user.add", target=name)
        if not _NAME.fullmatch(name):
            raise Invalid(
                f"{name!r} is no user name: letters, digits, '.', '@', '-' and '_', at most 63",
                details={"field": "name"},
            )
        _check_role(role)
        now = self.now()
        person = Person(
            name,
            passwords.hash_password(password),
            role,
            all_sites,
            self._known_sites(sites),
            tuple(dict.fromkeys(queues)),
            now,
            now,
        )
        with self.directory.transaction():
            if not self.directory.add_person(person):
                raise Clash(f"there is a user {name!r} already: change it with `kesin user set`")
            self.note(actor, "user.add", target=name, details={"role": role})
        return person

    def set_password(self, actor: Actor, name: str, password: str) -> None:
        """A new password; every session of that person ends."""
        self.require(actor, "admin", "user.passwd", target=name)
        told = passwords.hash_password(password)
        with self.directory.transaction():
            person = self._held(name)
            self.directory.change_person(person._replace(password_hash=told, changed_at=self.now()))
            ended = self.directory.end_sessions_of(name)
            self.note(actor, "user.passwd", target=name, details={"sessions_ended": ended})

    def set_person(
        self,
        actor: Actor,
        name: str,
        *,
        role: str | None = None,
        all_sites: bool | None = None,
        sites: Iterable[str] | None = None,
        queues: Iterable[str] | None = None,
        disabled: bool | None = None,
    ) -> Person:
        """Change role, sites, queues or whether the person may sign in; sessions end."""
        self.require(actor, "admin", "user.set", target=name)
        asked = {
            "role": None if role is None else _check_role(role),
            "all_sites": all_sites,
            "sites": None if sites is None else self._known_sites(sites),
            "queues": None if queues is None else tuple(dict.fromkeys(queues)),
        }
        told = {field: one for field, one in asked.items() if one is not None}
        changes: dict[str, Any] = {**told, "changed_at": self.now()}
        if disabled is not None:
            told["disabled"] = disabled
            changes["disabled_at"] = self.now() if disabled else None
        with self.directory.transaction():
            person = self._held(name)._replace(**changes)
            self.directory.change_person(person)
            self.directory.end_sessions_of(name)
            self.note(actor, "user.set", target=name, details={"changed": told})
        return person

    def end_sessions(self, actor: Actor, name: str) -> int:
        """Sign a person out everywhere; how many sessions ended."""
        self.require(actor, "admin", "user.sign_out", target=name)
        with self.directory.transaction():
            self._held(name)
            ended = self.directory.end_sessions_of(name)
            self.note(actor, "user.sign_out", target=name, details={"sessions_ended": ended})
        return ended

    def _held(self, name: str) -> Person:
        """The person as nobody else changes them meanwhile, so that no change is lost."""
        known = self._known_person(self.directory.person(name), name)
        return self._known_person(self.directory.hold_person(known.name), name)

    def _known_person(self, person: Person | None, name: str) -> Person:
        if person is None:
            raise Unknown(f"there is no user {name!r}: `kesin user list` shows who there is")
        return person

    # Sessions

    def sign_in(
        self, name: str, password: str, address: str, request_id: str | None = None
    ) -> tuple[str, Actor]:
        """A new session's token and who it stands for; raises NotSignedIn, the same for all."""
        person = self.directory.person(name)
        right = passwords.matches(person.password_hash if person else passwords.nobody(), password)
        # A name nobody has may be a password typed one field too early: it is not kept.
        known = person.name if person else "?"
        asker = Actor(f"user:{known}", frozenset(), address=address, request_id=request_id)
        token = passwords.new_token()
        if person is not None and (not right or person.disabled_at is not None):
            person = None
        if person is None or not (person := self._start_session(asker, person, password, token)):
            self.note(asker, "session.start", allowed=False)
            raise NotSignedIn("the name or the password is wrong", code="wrong_password")
        return token, replace(_person_actor(person, address), request_id=request_id)

    def _start_session(
        self, asker: Actor, seen: Person, password: str, token: str
    ) -> Person | None:
        """The person signed in; None when the password or the account was taken away meanwhile."""
        outdated = passwords.is_outdated(seen.password_hash)
        fresh = passwords.hash_password(password) if outdated else seen.password_hash
        now = self.now()
        self.directory.end_old_sessions(now, now - IDLE_S * SECOND_US)
        with self.directory.transaction():
            person = self.directory.hold_person(seen.name)
            if person is None or person.disabled_at is not None:
                return None
            if person.password_hash != seen.password_hash:
                if not passwords.matches(person.password_hash, password):
                    return None
            elif outdated:
                person = person._replace(password_hash=fresh, changed_at=now)
                self.directory.change_person(person)
            self.directory.add_session(
                Session(
                    passwords.fingerprint(token),
                    person.name,
                    now,
                    now,
                    now + SESSION_S * SECOND_US,
                    asker.address or "",
                )
            )
            self.note(asker, "session.start")
        return person

    def session_actor(self, token: str, address: str, *, used: bool = True) -> Actor | None:
        """Whom a session's cookie stands for; None when it has ended.

        What a page asks by itself is no use of the session: it ends while nobody is there.
        """
        mark = passwords.fingerprint(token)
        session = self.directory.session(mark)
        now = self.now()
        if session is None or session.expires_at <= now:
            return None
        if session.used_at <= now - IDLE_S * SECOND_US:
            return None
        person = self.directory.person(session.person)
        if person is None or person.disabled_at is not None:
            return None
        if used and now - session.used_at > USED_EVERY_S * SECOND_US:
            with suppress(StoreTrouble):  # a full disk keeps nobody from looking
                self.directory.use_session(mark, now)
        return _person_actor(person, address)

    def sign_out(self, actor: Actor, token: str, *, everywhere: bool = False) -> int:
        """End this session, or all of this person; how many ended."""
        mark = passwords.fingerprint(token)
        session = self.directory.session(mark)
        if session is None:
            return 0
        with self.directory.transaction():
            if everywhere:
                ended = self.directory.end_sessions_of(session.person)
            else:
                ended = int(self.directory.end_session(mark))
            self.note(actor, "session.end", details={"sessions_ended": ended})
        return ended

    # Keys

    def keys(self, actor: Actor) -> list[ApiKey]:
        self.require(actor, "admin", "key.list")
        return self.directory.api_keys()

    def create_key(
        self,
        actor: Actor,
        name: str,
        scopes: Iterable[str],
        *,
        site: str | None = None,
        days: int | None = None,
    ) -> tuple[str, ApiKey]:
        """A new key, to be shown once, and what is kept of it."""
        self.require(actor, "admin", "key.create", site=site, target=name)
        wanted = tuple(dict.fromkeys(scopes))
        strange = [scope for scope in wanted if scope not in SCOPES]
        if strange or not wanted:
            raise Invalid(
                f"a key has one or more of the scopes {', '.join(SCOPES)}"
                + (f", not {strange[0]!r}" if strange else ""),
                details={"field": "scope"},
            )
        if site is None and SITE_SCOPES & set(wanted):
            raise Invalid(
                f"a key for {min(SITE_SCOPES & set(wanted))} belongs to one site: name it",
                details={"field": "site"},
            )
        if not storable(name).strip() or len(name) > 100:  # noqa: PLR2004
            raise Invalid("a key has a name of 1…100 characters", details={"field": "name"})
        if site is not None:
            self._known_sites([site])
        if days is not None and not 1 <= days <= 3_650:  # noqa: PLR2004
            raise Invalid(f"a key lasts 1…3650 days, got {days}", details={"field": "days"})
        key, key_id = passwords.new_api_key()
        now = self.now()
        kept = ApiKey(
            key_id,
            passwords.fingerprint(key),
            storable(name),
            wanted,
            site,
            now,
            actor.name,
            None if days is None else now + days * DAY_S * SECOND_US,
        )
        with self.directory.transaction():
            if not self.directory.add_key(kept):
                raise Clash("the new key's id is taken: ask again")
            told = {"scopes": list(wanted)}
            self.note(actor, "key.create", site=site, target=key_id, details=told)
        return key, kept

    def revoke_key(self, actor: Actor, key_id: str) -> bool:
        """Whether it was not revoked before. A whole key is taken too, and never repeated."""
        key_id = passwords.key_id_of(key_id) or key_id
        told = key_id if len(key_id) <= passwords.ID_LENGTH else None
        self.require(actor, "admin", "key.revoke", target=told)
        if self.directory.api_key(key_id) is None:
            named = f"no key {told!r}" if told else "no such key"
            raise Unknown(f"there is {named}: `kesin key list` shows their ids")
        with self.directory.transaction():
            ended = self.directory.revoke_key(key_id, self.now())
            if ended:
                self.note(actor, "key.revoke", target=key_id)
        return ended

    def key_actor(self, key: str, address: str) -> Actor | None:
        """Whom a key stands for; None for a key that is wrong, over or revoked."""
        key_id = passwords.key_id_of(key)
        kept = self.directory.api_key(key_id) if key_id else None
        mark = passwords.fingerprint(key)
        if kept is None or not passwords.same(kept.secret_hash, mark):
            return None
        return self._valid(kept, address)

    def _valid(self, kept: ApiKey, address: str) -> Actor | None:
        now = self.now()
        if kept.revoked_at is not None or (kept.expires_at is not None and kept.expires_at <= now):
            return None
        if kept.used_at is None or now - kept.used_at > USED_EVERY_S * SECOND_US:
            with suppress(StoreTrouble):
                self.directory.use_key(kept.id, now)
        return Actor(
            f"{_OF_KEY}{kept.id}",
            frozenset(kept.scopes),
            all_sites=kept.site is None,
            sites=frozenset() if kept.site is None else frozenset({kept.site}),
            address=address,
        )

    def start_key_session(
        self, actor: Actor, scope: Scope, site: str, seconds: int
    ) -> tuple[str, int]:
        """A token for one thing at one site in the place of the asker's key, and when it ends."""
        if not actor.name.startswith(_OF_KEY) or actor.by_token:
            raise Refused("only a key gets such a token")
        person = f"{actor.name} {scope} {site}"
        token, now = passwords.new_key_session(), self.now()
        ends = now + seconds * SECOND_US
        self.directory.end_old_sessions(now, now - IDLE_S * SECOND_US)
        mark = passwords.fingerprint(token)
        self.directory.add_session(Session(mark, person, now, now, ends, actor.address or ""))
        return token, ends

    def key_session_actor(self, token: str, address: str) -> Actor | None:
        """Whom such a token stands for: its key at that site, for as long as both are valid."""
        session = self.directory.session(passwords.fingerprint(token))
        if session is None or session.expires_at <= self.now():
            return None
        if not session.person.startswith(_OF_KEY):
            return None
        key_id, scope, site = session.person.removeprefix(_OF_KEY).split(" ")
        kept = self.directory.api_key(key_id)
        actor = self._valid(kept, address) if kept else None
        if actor is None:
            return None
        return replace(
            actor,
            grants=frozenset({scope}),
            all_sites=False,
            sites=frozenset({site}),
            by_token=True,
        )

    def anybody(self) -> bool:
        """Whether there is a user who may sign in, or a key that opens something."""
        now = self.now()
        return any(one.disabled_at is None for one in self.directory.people()) or any(
            one.revoked_at is None and (one.expires_at is None or one.expires_at > now)
            for one in self.directory.api_keys()
        )


def cron_actor(address: str) -> Actor:
    """Whoever knows the cron secret."""
    return Actor("cron", frozenset({"cron"}), all_sites=True, address=address)


def at_request(actor: Actor, request_id: str) -> Actor:
    """The same actor, in one request."""
    return replace(actor, request_id=request_id)


def _person_actor(person: Person, address: str) -> Actor:
    return Actor(
        f"user:{person.name}",
        frozenset({person.role}),
        all_sites=person.all_sites,
        sites=frozenset(person.sites),
        queues=frozenset(person.queues),
        address=address,
    )


def _check_role(role: str) -> str:
    if role not in ROLES:
        raise Invalid(
            f"a role is one of {', '.join(ROLES)}, got {role!r}", details={"field": "role"}
        )
    return role
