"""Secrets at rest: sealed under keys that the database does not hold.

A copy of the database, or a backup of it, gives nothing away without ``KESIN_SECRET_KEYS``. Each
sealed text belongs to one name and one key: moved to another row it does not open, and not a
character of it can be changed unnoticed. No error tells a secret or a key.
"""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kesin.foundation.problems import Invalid, TooLarge, Unavailable
from kesin.foundation.settings import BadSettings, Settings, variable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SETTING: Final = variable("secret_keys")
KEY_BYTES: Final = 32  # AES-256
NONCE_BYTES: Final = 12  # random, so one key seals 2^32 times at most; nobody puts secrets so often
LARGEST_BYTES: Final = 65_536  # a certificate chain with its key fits
VERSION: Final = "v1"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")  # shorter than a key: a key put there is refused
_ID_TAKES: Final = "1…32 letters, digits, '-' or '_'"
_KEY: Final = re.compile(r"([A-Za-z0-9_-]{43})=?")
_SEALED: Final = re.compile(rf"{VERSION}\.({_ID.pattern})\.([A-Za-z0-9_-]{{16}})\.([A-Za-z0-9_-]+)")


class NoKeys(Unavailable):
    """No key is configured, so nothing can be sealed or opened."""

    code = "no_secret_keys"

    def __init__(self) -> None:
        super().__init__(
            f"there is no key for secrets: set {SETTING} to what `kesin secrets new-key` prints"
        )


class NotOpened(Unavailable):
    """A sealed text that this ring does not open."""

    code = "secret_not_opened"


class MissingKey(NotOpened):
    """It was sealed with a key that is not in the ring."""

    code = "secret_key_missing"


class Altered(NotOpened):
    """It is not, or no longer, what was sealed under this name with the key it names."""

    code = "secret_altered"


class KeyRing:
    """Keys by id: the first one seals, each one opens what it sealed.

    It keeps ciphers and no key bytes, so that printing or inspecting a ring shows none.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        aes = _aes()
        self._ciphers = {key_id: aes(key) for key_id, key in keys.items()}
        self.ids = tuple(keys)

    @classmethod
    def from_setting(cls, text: str) -> KeyRing:
        """The ring that ``name:key,name2:key2`` describes; raises BadSettings.

        The sentences count entries instead of quoting them: whoever mixed up the two sides of the
        colon would find a key in the log.
        """
        keys: dict[str, bytes] = {}
        wrong: list[str] = []
        for number, entry in enumerate(text.strip().split(","), 1):
            name, colon, spelled = entry.strip().partition(":")
            key = _KEY.fullmatch(spelled)
            raw = _decoded(key[1]) if key else None
            if not colon:
                wrong.append(f"entry {number} must be name:key and has no ':'")
            elif not _ID.fullmatch(name):
                wrong.append(f"the name in entry {number} must be {_ID_TAKES}")
            elif raw is None:
                wrong.append(f"the key in entry {number} must be {KEY_BYTES} bytes in base64url")
            elif name in keys:
                wrong.append(f"entry {number} has the name of another entry")
            elif raw in keys.values():
                wrong.append(f"entry {number} has the key of another entry")
            else:
                keys[name] = raw
        if wrong:
            raise BadSettings(
                f"{SETTING}: {'; '.join(wrong)}; `kesin secrets new-key` prints an entry that fits"
            )
        return cls(keys)

    @property
    def first(self) -> str:
        """The id of the key that seals."""
        return self.ids[0]

    def seal(self, name: str, text: str) -> str:
        """The text as it may be stored under this name: ``v1.<key id>.<nonce>.<ciphertext>``."""
        plain = text.encode("utf-8", "surrogatepass")
        if len(plain) > LARGEST_BYTES:
            raise TooLarge(f"a secret has at most {LARGEST_BYTES} bytes, this one {len(plain)}")
        nonce = secrets.token_bytes(NONCE_BYTES)
        ciphertext = self._ciphers[self.first].encrypt(nonce, plain, _bound_to(self.first, name))
        return f"{VERSION}.{self.first}.{_encoded(nonce)}.{_encoded(ciphertext)}"

    def open(self, name: str, sealed: str) -> str:
        """The text that was sealed under this name; raises MissingKey or Altered."""
        from cryptography.exceptions import InvalidTag

        parts = _SEALED.fullmatch(sealed)
        if parts is None:
            raise _altered(name)
        key_id, nonce, ciphertext = parts[1], _decoded(parts[2]), _decoded(parts[3])
        if nonce is None or ciphertext is None:
            raise _altered(name)
        if key_id not in self._ciphers:
            raise MissingKey(
                f"the secret {name!r} is sealed with the key {key_id!r}, which is not in {SETTING}:"
                " add that key again, or put the secret anew",
                details={"name": name, "key": key_id},
            )
        try:
            plain = self._ciphers[key_id].decrypt(nonce, ciphertext, _bound_to(key_id, name))
        except InvalidTag:
            raise _altered(name) from None
        return plain.decode("utf-8", "surrogatepass")

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self.ids)})"


def key_ring(settings: Settings) -> KeyRing | None:
    """The ring of the settings; None where no key is set."""
    if settings.secret_keys is None:
        return None
    return KeyRing.from_setting(settings.secret_keys.get_secret_value())


def new_key(name: str | None = None) -> str:
    """A new entry for the setting, ``name:key``; an unused name is made up where none is given."""
    if name is None:
        name = f"k{secrets.token_hex(4)}"
    if not _ID.fullmatch(name):
        raise Invalid(f"a key's name must be {_ID_TAKES}", details={"field": "name"})
    return f"{name}:{_encoded(secrets.token_bytes(KEY_BYTES))}"


def key_of(sealed: str) -> str | None:
    """The id of the key a text was sealed with; None for what is no sealed text."""
    parts = _SEALED.fullmatch(sealed)
    return parts[1] if parts else None


def _altered(name: str) -> Altered:
    return Altered(
        f"the secret {name!r} does not open: it was changed in the database or belongs to another "
        "name, or its key was replaced by another of the same name; put the secret anew",
        details={"name": name},
    )


def _bound_to(key_id: str, name: str) -> bytes:
    """What a sealed text belongs to. An id has no NUL, so that no two pairs are spelled alike."""
    return f"kesin secret {VERSION}\0{key_id}\0{name}".encode("utf-8", "surrogatepass")


def _encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _decoded(text: str) -> bytes | None:
    """The bytes; None unless this is their one spelling, spare bits included."""
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except NotBase64:
        return None
    return raw if _encoded(raw) == text else None


def _aes() -> type[AESGCM]:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise Unavailable(
            "sealing secrets needs cryptography: install it with `pip install 'kesin[web]'`"
        ) from None
    return AESGCM
