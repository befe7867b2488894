"""Passwords are hashed slowly, as they can be guessed; tokens and keys fast. None is stored."""

import hashlib
import hmac
import re
import secrets
from functools import cache
from itertools import pairwise
from pathlib import Path
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
MIN_DIFFERENT: Final = 5  # characters
MAX_RUNS: Final = 3  # "abcde12345" has two
_REPEATED: Final = re.compile(r"(.+?)\1+", re.DOTALL)
_NO_LETTERS: Final = re.compile(r"[\W\d_]+")
# Neighbours on a keyboard, row by row and (1qaz2wsx) column by column.
_NEIGHBOURS: Final = frozenset(
    pair
    for line in (
        *("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm", "qwertyuıopğü", "asdfghjklşi"),
        *("azertyuiop", "qsdfghjklm", "1qaz2wsx3edc4rfv5tgb6yhn7ujm", "1q2w3e4r5t6y7u8i9o0p"),
        "q1w2e3r4t5y6u7i8o9p0",
    )
    for pair in pairwise(line)
)
# The commonest words that people write before or after a few digits.
_COMMON: Final = frozenset(Path(__file__).with_name("common_passwords.txt").read_text("utf-8").split())


@cache
def _hasher() -> "PasswordHasher":
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise Unavailable("passwords need argon2-cffi: install it with `pip install 'kesin[web]'`") from None
    return PasswordHasher()


def hash_password(password: str) -> str:
    """Hash a password for storage; raises Invalid for an unacceptable length or character."""
    check_length(password)
    return _hasher().hash(password)


def check_length(password: str) -> None:
    """Raise Invalid for a password that is too short, too long or cannot be stored."""
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        raise Invalid(
            "a password must have %(least)s…%(most)s characters; this one has %(n)s",
            details={"field": "password"},
            least=MIN_PASSWORD_LENGTH,
            most=MAX_PASSWORD_LENGTH,
            n=len(password),
        )
    if storable(password) != password:
        raise Invalid("a password must not contain NUL or lone surrogates", details={"field": "password"})


def check_password(password: str, user_name: str) -> None:
    """Raise Invalid for a password that is too short, too long or easy to guess."""
    check_length(password)
    folded, name = password.casefold(), user_name.casefold()
    if len(set(folded)) < MIN_DIFFERENT or _REPEATED.fullmatch(folded):
        raise _easy("this password repeats a few characters: choose one that is hard to guess")
    if _runs(folded) <= MAX_RUNS:
        raise _easy("this password is a simple sequence: choose one that is hard to guess")
    if name and name in folded and len(folded.replace(name, "")) < MIN_PASSWORD_LENGTH:
        raise _easy("this password is little more than the name: choose one that is hard to guess")
    if _NO_LETTERS.sub("", folded) in _COMMON:
        raise _easy("this password is one of the most common: choose one that is hard to guess")


def _runs(text: str) -> int:
    """How many runs of neighbours the text consists of, such as ``abc``, ``321`` or ``asd``."""
    pairs = [(one, other) for one, other in pairwise(text) if abs(ord(one) - ord(other)) > 1]
    return 1 + sum(pair not in _NEIGHBOURS and pair[::-1] not in _NEIGHBOURS for pair in pairs)


def _easy(message: str) -> Invalid:
    return Invalid(message, code="easy_password", details={"field": "password"})


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


def key_id_of(key: str) -> str | None:
    """The id inside an API key; None if the text is no key."""
    match = _KEY.fullmatch(key)
    return match[1] if match else None


def hash_token(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def equal_secrets(left: str, right: str) -> bool:
    """Whether two secrets are equal, compared in constant time."""
    ours, theirs = (text.encode("utf-8", "surrogatepass") for text in (left, right))
    return hmac.compare_digest(ours, theirs)
