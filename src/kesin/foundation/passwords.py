"""Passwords, session tokens and API keys: made, hashed and compared; never stored or logged.

A password is what a person can remember, so its hash is slow (argon2id). Tokens and keys are 32
random bytes, so a fast hash is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from functools import cache
from typing import TYPE_CHECKING, Final

from kesin.foundation.problems import Invalid, Unavailable
from kesin.foundation.text import storable

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST: Final = 10
LONGEST: Final = 1_024  # hashing costs time: nobody may ask for more
ID_LENGTH: Final = 8
KEY_SESSION: Final = "kesin_session_"
_KEY: Final = re.compile(r"kesin_([a-z0-9]{8})_([A-Za-z0-9_-]{43})")
_ALPHABET: Final = "abcdefghijkmnpqrstuvwxyz23456789"


@cache
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise Unavailable(
            "passwords need argon2-cffi: install it with `pip install 'kesin[web]'`"
        ) from None
    return PasswordHasher()


def hash_password(password: str) -> str:
    """The hash to store; raises Invalid for a password nobody should have."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise Invalid(
            f"a password has {SHORTEST}…{LONGEST} characters, this one has {len(password)}",
            details={"field": "password"},
        )
    if storable(password) != password:
        raise Invalid(
            "a password has no NUL and no half characters in it", details={"field": "password"}
        )
    return _hasher().hash(password)


def matches(password_hash: str, password: str) -> bool:
    """Whether this is the password; takes as long when it is not."""
    hasher = _hasher()
    from argon2.exceptions import InvalidHashError, VerificationError

    tried = password[:LONGEST].encode("utf-8", "surrogatepass")
    try:
        hasher.verify(password_hash, tried)
    except (VerificationError, InvalidHashError):
        return False
    return len(password) <= LONGEST


def is_outdated(password_hash: str) -> bool:
    """Whether the hash was made with weaker settings than today's."""
    return _hasher().check_needs_rehash(password_hash)


@cache
def nobody() -> str:
    """A hash that no password has: a name that does not exist takes as long as one that does."""
    return _hasher().hash(secrets.token_urlsafe(32))


def one_time_password() -> str:
    """A password to be read off a terminal: 20 characters without look-alikes, 99 bits."""
    return "-".join("".join(secrets.choice(_ALPHABET) for _ in range(5)) for _ in range(4))


def new_token() -> str:
    """A session's token."""
    return secrets.token_urlsafe(32)


def new_api_key() -> tuple[str, str]:
    """A key and its id: ``kesin_<id>_<secret>``."""
    key_id = "".join(secrets.choice(_ALPHABET) for _ in range(ID_LENGTH))
    return f"kesin_{key_id}_{secrets.token_urlsafe(32)}", key_id


def new_key_session() -> str:
    """A token that stands for a key for a few minutes."""
    return f"{KEY_SESSION}{secrets.token_urlsafe(32)}"


def key_id_of(key: str) -> str | None:
    """The id inside a key; None for what is no key."""
    match = _KEY.fullmatch(key)
    return match[1] if match else None


def fingerprint(secret: str) -> str:
    """What is stored of a token or a key."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def same(one: str, other: str) -> bool:
    """Compare without telling by the time it takes how much was right."""
    ours, theirs = (text.encode("utf-8", "surrogatepass") for text in (one, other))
    return hmac.compare_digest(ours, theirs)
