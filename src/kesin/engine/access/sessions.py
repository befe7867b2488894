"""The sessions of users: sign in, sign out, and change one's own password."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from kesin.engine.access.sites import Sites
from kesin.engine.validation import invalid_field
from kesin.foundation import passwords
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Forbidden, NotSignedIn, RequestConflict
from kesin.lifecycle.budget import SECOND_US
from kesin.store.directory import Session, User
from kesin.store.errors import StoreTrouble

SESSION_S: Final = 8 * 3_600  # from sign-in
IDLE_S: Final = 3_600  # from the last request
LAST_USED_RESOLUTION_S: Final = 60  # "last used" is written at most this often


class UserSessions(Sites):
    """Sessions of users, with the sites and the audit log."""

    def sign_in(
        self, name: str, password: str, address: str, request_id: str | None = None
    ) -> tuple[str, Actor]:
        """Start a session: its token and actor. Raises the same NotSignedIn for every cause."""
        user = self.directory.user(name)
        matches = passwords.password_matches(
            user.password_hash if user else passwords.unmatched_hash(), password
        )
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

    def _start_session(
        self, asker: Actor, checked_user: User, password: str, token: str
    ) -> User | None:
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

    def change_own_password(
        self, actor: Actor, token: str, current: str, new: str
    ) -> tuple[str, int]:
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


def _user_actor(user: User, address: str) -> Actor:
    return Actor(
        f"user:{user.name}",
        frozenset({user.role}),
        all_sites=user.all_sites,
        sites=frozenset(user.sites),
        queues=frozenset(user.queues),
        address=address,
    )
