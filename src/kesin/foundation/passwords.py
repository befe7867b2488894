"""Create, hash and compare passwords, session tokens and API keys; none is stored or logged.

A password can be guessed, so its hash is slow (argon2id). Tokens and keys are 32 random bytes that
cannot be guessed, so a fast hash is enough.
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

MIN_PASSWORD_LENGTH: Final = 10
MAX_PASSWORD_LENGTH: Final = 1_024  # bounds the time that hashing takes
ID_LENGTH: Final = 8
KEY_SESSION_PREFIX: Final = "kesin_session_"
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
    """Hash a password for storage; raises Invalid for an unacceptable length or character."""
    check_length(password)
    return _hasher().hash(password)


def check_length(password: str) -> None:
    """Raise Invalid for a password that is too short, too long or cannot be stored."""
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise Invalid(
            "a password has %(least)s…%(most)s characters, this one has %(n)s",
            details={"field": "password"},
            least=MIN_PASSWORD_LENGTH,
            most=MAX_PASSWORD_LENGTH,
            n=len(password),
        )
    if storable(password) != password:
        raise Invalid(
            "a password has no NUL and no half characters in it", details={"field": "password"}
        )


def password_matches(password_hash: str, password: str) -> bool:
    """Whether the password matches the hash; takes the same time either way."""
    hasher = _hasher()
    from argon2.exceptions import InvalidHashError, VerificationError

    candidate = password[:MAX_PASSWORD_LENGTH].encode("utf-8", "surrogatepass")
    try:
        hasher.verify(password_hash, candidate)
    except (VerificationError, InvalidHashError):
        return False
    return len(password) <= MAX_PASSWORD_LENGTH


def is_outdated(password_hash: str) -> bool:
    """Whether the hash was made with weaker settings than the current ones."""
    return _hasher().check_needs_rehash(password_hash)


@cache
def unmatched_hash() -> str:
    """A hash that no password matches, so that an unknown user takes as long as a known one."""
    return _hasher().hash(secrets.token_urlsafe(32))


def one_time_password() -> str:
    """A random password of 20 characters without look-alikes (99 bits), to be read off a screen."""
    return "-".join("".join(secrets.choice(_ALPHABET) for _ in range(5)) for _ in range(4))


def new_token() -> str:
    return secrets.token_urlsafe(32)


def new_api_key() -> tuple[str, str]:
    """A new API key, ``kesin_<id>_<secret>``, and its id."""
    key_id = "".join(secrets.choice(_ALPHABET) for _ in range(ID_LENGTH))
    return f"kesin_{key_id}_{secrets.token_urlsafe(32)}", key_id


def new_key_session() -> str:
    """A new token that replaces an API key for a few minutes."""
    return f"{KEY_SESSION_PREFIX}{secrets.token_urlsafe(32)}"


def key_id_of(key: str) -> str | None:
    """The id inside an API key; None if the text is no key."""
    match = _KEY.fullmatch(key)
    return match[1] if match else None


def hash_token(secret: str) -> str:
    """The hash of a token or key, as it is stored."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def equal_secrets(left: str, right: str) -> bool:
    """Whether two secrets are equal, compared in constant time."""
    ours, theirs = (text.encode("utf-8", "surrogatepass") for text in (left, right))
    return hmac.compare_digest(ours, theirs)
