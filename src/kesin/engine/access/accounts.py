"""Users, their sessions, and API keys: all changes are audited, and actors are made only here."""

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kesin.engine.access.sites import Sites
from kesin.engine.validation import invalid_field
from kesin.foundation import passwords
from kesin.foundation.permissions import ROLES, SCOPES, SITE_SCOPES, SITELESS_SCOPES, Actor, Scope
from kesin.foundation.problems import Forbidden, NotFound, NotSignedIn, RequestConflict
from kesin.foundation.text import storable
from kesin.lifecycle.budget import DAY_S, SECOND_US
from kesin.store.directory import ApiKey, Session, User
from kesin.store.errors import StoreTrouble

SESSION_S: Final = 8 * 3_600  # from sign-in
IDLE_S: Final = 3_600  # from the last request
LAST_USED_RESOLUTION_S: Final = 60  # "last used" is written at most this often
_KEY_PREFIX: Final = "key:"  # no user name has a colon
_USER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")


class Accounts(Sites):
    """Users, sessions and API keys, with the sites and the audit log."""

    # Users

    def users(self, actor: Actor) -> list[User]:
        self.require(actor, "admin", "user.list")
        return self.directory.users()

    def user(self, actor: Actor, name: str) -> User:
        self.require(actor, "admin", "user.show", target=name)
        return self._require_user(self.directory.user(name), name)

    def add_user(
        self,
        actor: Actor,
        name: str,
        password: str,
        *,
        role: str = "viewer",
        all_sites: bool = False,
        sites: Iterable[str] = (),
        queues: Iterable[str] = (),
    ) -> User:
        self.require(actor, "admin", "user.add", target=name)
        if not _USER_NAME.fullmatch(name):
            raise invalid_field(
                "name",
                "%(name)s is not a user name: use up to 63 letters, digits, '.', '@', '-' or '_'",
                name=repr(name),
            )
        _check_role(role)
        passwords.check_password(password, name)
        now, password_hash = self.now(), passwords.hash_password(password)
        with self.directory.transaction():
            site_ids, queue_names = self._keep_sites(sites), tuple(dict.fromkeys(queues))
            user = User(name, password_hash, role, all_sites, site_ids, queue_names, now, now)
            if not self.directory.add_user(user):
                raise RequestConflict(
                    "the user %(name)s already exists: change it with `kesin user set`",
                    name=repr(name),
                    details={"field": "name"},
                )
            self.note(actor, "user.add", target=name, details={"role": role})
        return user

    def set_password(self, actor: Actor, name: str, password: str) -> None:
        """Set a new password and end every session of the user."""
        self.require(actor, "admin", "user.passwd", target=name)
        passwords.check_password(password, name)
        password_hash = passwords.hash_password(password)
        with self.directory.transaction():
            self.directory.update_user(
                self._lock_user(name)._replace(password_hash=password_hash, changed_at=self.now())
            )
            ended = self.directory.end_sessions_of(name)
            self.note(actor, "user.passwd", target=name, details={"sessions_ended": ended})

    def set_user(
        self,
        actor: Actor,
        name: str,
        *,
        role: str | None = None,
        all_sites: bool | None = None,
        sites: Iterable[str] | None = None,
        queues: Iterable[str] | None = None,
        disabled: bool | None = None,
    ) -> User:
        """Change role, sites, queues or whether the user may sign in; end the user's sessions."""
        self.require(actor, "admin", "user.set", target=name)
        with self.directory.transaction():
            values = {
                "role": None if role is None else _check_role(role),
                "all_sites": all_sites,
                "sites": None if sites is None else self._keep_sites(sites),
                "queues": None if queues is None else tuple(dict.fromkeys(queues)),
            }
            changed = {field: value for field, value in values.items() if value is not None}
            changes: dict[str, Any] = {**changed, "changed_at": self.now()}
            if disabled is not None:
                changed["disabled"] = disabled
                changes["disabled_at"] = self.now() if disabled else None
            user = self._lock_user(name)._replace(**changes)
            self.directory.update_user(user)
            self.directory.end_sessions_of(name)
            self.note(actor, "user.set", target=name, details={"changed": changed})
        return user

    def end_sessions(self, actor: Actor, name: str) -> int:
        """Sign a user out everywhere; return how many sessions ended."""
        self.require(actor, "admin", "user.sign_out", target=name)
        with self.directory.transaction():
            self._lock_user(name)
            ended = self.directory.end_sessions_of(name)
            self.note(actor, "user.sign_out", target=name, details={"sessions_ended": ended})
        return ended

    def _lock_user(self, name: str) -> User:
        """Lock and return the user, so that no concurrent change is lost."""
        user = self._require_user(self.directory.user(name), name)
        return self._require_user(self.directory.lock_user(user.name), name)

    def _require_user(self, user: User | None, name: str) -> User:
        if user is None:
            raise NotFound("there is no user %(name)s: `kesin user list` lists the users", name=repr(name))
        return user

    # Sessions

    def sign_in(self, name: str, password: str, address: str, request_id: str | None = None) -> tuple[str, Actor]:
        """Start a session: its token and actor. Raises the same NotSignedIn for every cause."""
        user = self.directory.user(name)
        matches = passwords.password_matches(user.password_hash if user else passwords.unmatched_hash(), password)
        # An unknown name may be a password typed in the wrong field: it is not stored.
        shown_name = user.name if user else "?"
        asker = Actor(f"user:{shown_name}", frozenset(), address=address, request_id=request_id)
        token = passwords.new_token()
        if user is not None and (not matches or user.disabled_at is not None):
            user = None
        if user is None or not (user := self._start_session(asker, user, password, token)):
            self.note(asker, "session.start", allowed=False)
            raise NotSignedIn("the name or the password is wrong", code="wrong_password")
        return token, replace(_user_actor(user, address), request_id=request_id)

    def _start_session(self, asker: Actor, checked_user: User, password: str, token: str) -> User | None:
        """The user signed in; None if the password or the account changed meanwhile."""
        outdated = passwords.is_outdated(checked_user.password_hash)
        new_hash = passwords.hash_password(password) if outdated else checked_user.password_hash
        now = self.now()
        self.directory.end_old_sessions(now, now - IDLE_S * SECOND_US)
        with self.directory.transaction():
            user = self.directory.lock_user(checked_user.name)
            if user is None or user.disabled_at is not None:
                return None
            if user.password_hash != checked_user.password_hash:
                if not passwords.password_matches(user.password_hash, password):
                    return None
            elif outdated:
                user = user._replace(password_hash=new_hash, changed_at=now)
                self.directory.update_user(user)
            token_hash, ends_at = passwords.hash_token(token), now + SESSION_S * SECOND_US
            session = Session(token_hash, user.name, now, now, ends_at, asker.address or "")
            self.directory.add_session(session)
            self.note(asker, "session.start")
        return user

    def session_actor(self, token: str, address: str, *, used: bool = True) -> Actor | None:
        """The actor of a session, or None; what a page asks by itself is not ``used``."""
        token_hash = passwords.hash_token(token)
        session = self.directory.session(token_hash)
        now = self.now()
        idle_since = now - IDLE_S * SECOND_US
        if session is None or session.expires_at <= now or session.used_at <= idle_since:
            return None
        user = self.directory.user(session.person)
        if user is None or user.disabled_at is not None:
            return None
        if used and now - session.used_at > LAST_USED_RESOLUTION_S * SECOND_US:
            with suppress(StoreTrouble):  # reading still works with a full disk
                self.run_later(partial(self.directory.touch_session, token_hash, now))
        return _user_actor(user, address)

    def sign_out(self, actor: Actor, token: str, *, everywhere: bool = False) -> int:
        """End this session, or all sessions of its user; return how many ended."""
        token_hash = passwords.hash_token(token)
        session = self.directory.session(token_hash)
        if session is None:
            return 0
        with self.directory.transaction():
            if everywhere:
                ended = self.directory.end_sessions_of(session.person)
            else:
                ended = int(self.directory.end_session(token_hash))
            self.note(actor, "session.end", details={"sessions_ended": ended})
        return ended

    def change_own_password(self, actor: Actor, token: str, current: str, new: str) -> tuple[str, int]:
        """Change a user's password; return a new session, and how many others ended."""
        session = self.directory.session(passwords.hash_token(token))
        user = self.directory.user(session.person) if session else None
        if session is None or user is None or actor.name != f"user:{user.name}":
            raise NotSignedIn("sign in with a user name to change your password", code="no_session")
        if not passwords.password_matches(user.password_hash, current):
            self.note(actor, "user.passwd", target=user.name, allowed=False)
            wrong = {"field": "current"}
            raise Forbidden("the current password is wrong", code="wrong_password", details=wrong)
        if new == current:
            raise invalid_field("password", "this is the current password")
        passwords.check_password(new, user.name)
        new_hash = passwords.hash_password(new)
        new_token, now = passwords.new_token(), self.now()
        with self.directory.transaction():
            locked = self.directory.lock_user(user.name)
            if locked is None or locked.disabled_at or locked.password_hash != user.password_hash:
                raise RequestConflict("the account was changed in the meantime: sign in again")
            self.directory.update_user(locked._replace(password_hash=new_hash, changed_at=now))
            ended = self.directory.end_sessions_of(user.name) - 1
            token_hash = passwords.hash_token(new_token)
            renewed = session._replace(token_hash=token_hash, created_at=now, used_at=now)
            self.directory.add_session(renewed)
            self.note(actor, "user.passwd", target=user.name, details={"sessions_ended": ended})
        return new_token, ended

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
        all_sites: bool = False,
        days: int | None = None,
    ) -> tuple[str, ApiKey]:
        """Create a key and its record; a scope that belongs to a site needs it or ``all_sites``."""
        self.require(actor, "admin", "key.create", site=site, target=name)
        key_scopes = tuple(dict.fromkeys(scopes))
        known, unknown = ", ".join(SCOPES), [one for one in key_scopes if one not in SCOPES]
        if unknown:
            raise invalid_field(
                "scope",
                "a key must have one or more of the scopes %(scopes)s, not %(scope)s",
                scopes=known,
                scope=repr(unknown[0]),
            )
        if not key_scopes:
            raise invalid_field("scope", "a key must have one or more of the scopes %(scopes)s", scopes=known)
        if site is not None and all_sites:
            raise invalid_field("site", "a key is for one site or for all sites, not both")
        if site is None and not all_sites and (sited := SITE_SCOPES & set(key_scopes)):
            raise invalid_field("site", "a key with %(scope)s belongs to one site: specify the site", scope=min(sited))
        if site is not None and (siteless := SITELESS_SCOPES & set(key_scopes)):
            raise invalid_field(
                "site", "%(scope)s cannot be limited to a site: create the key without a site", scope=min(siteless)
            )
        if not storable(name).strip() or len(name) > 100:  # noqa: PLR2004
            raise invalid_field("name", "a key's name must have 1…100 characters")
        if days is not None and not 1 <= days <= 3_650:  # noqa: PLR2004
            raise invalid_field("days", "a key must expire in 1…3650 days, got %(days)s", days=days)
        key, key_id = passwords.new_api_key()
        now = self.now()
        ends_at = None if days is None else now + days * DAY_S * SECOND_US
        key_hash, key_name = passwords.hash_token(key), storable(name)
        record = ApiKey(key_id, key_hash, key_name, key_scopes, site, now, actor.name, ends_at)
        with self.directory.transaction():
            self._keep_sites([site] if site is not None else [])
            if not self.directory.add_key(record):
                raise RequestConflict("the new key's id is already used: try again")
            details = {"scopes": list(key_scopes)}
            self.note(actor, "key.create", site=site, target=key_id, details=details)
        return key, record

    def revoke_key(self, actor: Actor, key_id: str) -> bool:
        """Revoke a key by its id or by itself, never logged; return whether it was valid."""
        key_id = passwords.key_id_of(key_id) or key_id
        shown_id = key_id if len(key_id) <= passwords.ID_LENGTH else None
        self.require(actor, "admin", "key.revoke", target=shown_id)
        if self.directory.api_key(key_id) is None:
            why = "there is no key %(id)s: `kesin key list` shows all ids"
            raise NotFound(why, id=repr(shown_id) if shown_id else "…")
        with self.directory.transaction():
            ended = self.directory.revoke_key(key_id, self.now())
            if ended:
                self.note(actor, "key.revoke", target=key_id)
        return ended

    def key_actor(self, key: str, address: str) -> Actor | None:
        """The actor of an API key; None if the key is wrong, expired or revoked."""
        key_id = passwords.key_id_of(key)
        record = self.directory.api_key(key_id) if key_id else None
        key_hash = passwords.hash_token(key)
        if record is None or not passwords.equal_secrets(record.secret_hash, key_hash):
            return None
        return self._key_actor(record, address)

    def _key_actor(self, record: ApiKey, address: str) -> Actor | None:
        now = self.now()
        if record.revoked_at is not None or (record.expires_at is not None and record.expires_at <= now):
            return None
        if record.used_at is None or now - record.used_at > LAST_USED_RESOLUTION_S * SECOND_US:
            with suppress(StoreTrouble):
                self.run_later(partial(self.directory.touch_key, record.id, now))
        return Actor(
            f"{_KEY_PREFIX}{record.id}",
            frozenset(record.scopes),
            all_sites=record.site is None,
            sites=frozenset() if record.site is None else frozenset({record.site}),
            address=address,
        )

    def start_key_session(self, actor: Actor, scope: Scope, site: str, seconds: int) -> tuple[str, int]:
        """Create a token for one scope at one site that replaces the caller's key; and its end."""
        if not actor.name.startswith(_KEY_PREFIX) or actor.by_token:
            raise Forbidden("only an API key can get such a token")
        owner = f"{actor.name} {scope} {site}"
        token, now = f"{passwords.KEY_SESSION_PREFIX}{passwords.new_token()}", self.now()
        ends_at = now + seconds * SECOND_US
        self.directory.end_old_sessions(now, now - IDLE_S * SECOND_US)
        token_hash, address = passwords.hash_token(token), actor.address or ""
        self.directory.add_session(Session(token_hash, owner, now, now, ends_at, address))
        return token, ends_at

    def key_session_actor(self, token: str, address: str) -> Actor | None:
        """The actor of such a token: its key at that site, while both are valid."""
        session = self.directory.session(passwords.hash_token(token))
        if session is None or session.expires_at <= self.now():
            return None
        if not session.person.startswith(_KEY_PREFIX):
            return None
        key_id, scope, site = session.person.removeprefix(_KEY_PREFIX).split(" ")
        record = self.directory.api_key(key_id)
        actor = self._key_actor(record, address) if record else None
        if actor is None:
            return None
        grants, sites = frozenset({scope}), frozenset({site})
        return replace(actor, grants=grants, all_sites=False, sites=sites, by_token=True)

    def has_usable_account(self) -> bool:
        """Whether a user may sign in or an API key is valid."""
        now = self.now()
        return any(user.disabled_at is None for user in self.directory.users()) or any(
            key.revoked_at is None and (key.expires_at is None or key.expires_at > now)
            for key in self.directory.api_keys()
        )


def cron_actor(address: str) -> Actor:
    return Actor("cron", frozenset({"cron"}), all_sites=True, address=address)


def _user_actor(user: User, address: str) -> Actor:
    return Actor(
        f"user:{user.name}",
        frozenset({user.role}),
        all_sites=user.all_sites,
        sites=frozenset(user.sites),
        queues=frozenset(user.queues),
        address=address,
    )


def _check_role(role: str) -> str:
    if role not in ROLES:
        known = ", ".join(ROLES)
        raise invalid_field("role", "a role must be one of %(roles)s, got %(role)s", roles=known, role=repr(role))
    return role
