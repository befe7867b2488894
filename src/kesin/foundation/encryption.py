"""Sealed secrets and signatures: their keys are not in the database, nor in any message."""

import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import Final, Self

from kesin.foundation.problems import Invalid, TooLarge, Unavailable
from kesin.foundation.settings import BadSettings, Settings, variable

SETTING: Final = variable("secret_keys")
KEY_BYTES: Final = 32  # AES-256
NONCE_BYTES: Final = 12  # random, so one key may seal 2^32 times, far more often than needed
MAX_SECRET_BYTES: Final = 65_536  # a certificate chain with its key fits
VERSION: Final = "v1"
_SIGNING: Final = b"kesin signature v1"
_HASH: Final = "sha256"
# Shorter than a key, so that a key in its place is refused.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_ID_TAKES: Final = "1…32 letters, digits, '-' or '_'"
_KEY: Final = re.compile(r"([A-Za-z0-9_-]{43})=?")
_SIGNATURE: Final = re.compile(rf"{VERSION}\.({_ID.pattern})\.([A-Za-z0-9_-]{{43}})")
_SEALED: Final = re.compile(rf"{VERSION}\.({_ID.pattern})\.([A-Za-z0-9_-]{{16}})\.([A-Za-z0-9_-]+)")


class NoSecretKeys(Unavailable, code="no_secret_keys"):
    """No key is configured, so nothing can be sealed or opened."""

    def __init__(self) -> None:
        super().__init__(f"there is no key for secrets: set {SETTING} to the output of `kesin secrets new-key`")


class SecretNotOpened(Unavailable, code="secret_not_opened"):
    """The key ring does not open this sealed text."""


class SecretKeyMissing(SecretNotOpened, code="secret_key_missing"):
    """The text was sealed with a key that is not in the ring."""


class SecretAltered(SecretNotOpened, code="secret_altered"):
    """The text is not what was sealed under this name with the key that it names."""


class KeyRing:
    """Keys by id: the first seals and signs, every key opens and checks what it sealed."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise Unavailable(
                "encrypting secrets needs cryptography: install it with `pip install 'kesin[web]'`"
            ) from None
        # No bytes of keys stay to be printed; a signer's key is derived, so that none has two uses.
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        derived = {key_id: hmac.digest(key, _SIGNING, _HASH) for key_id, key in keys.items()}
        self._signers = {key_id: hmac.new(key, digestmod=_HASH) for key_id, key in derived.items()}
        self.ids = tuple(keys)

    @classmethod
    def from_setting(cls, text: str) -> Self:
        """Parse ``name:key,…``; no message quotes an entry: its sides may be swapped."""
        keys: dict[str, bytes] = {}
        problems: list[str] = []
        for number, entry in enumerate(text.strip().split(","), 1):
            name, colon, encoded_key = entry.strip().partition(":")
            key = _KEY.fullmatch(encoded_key)
            raw = _decode(key[1]) if key else None
            if not colon:
                problems.append(f"entry {number} must be name:key, but has no ':'")
            elif not _ID.fullmatch(name):
                problems.append(f"the name in entry {number} must be {_ID_TAKES}")
            elif raw is None:
                problems.append(f"the key in entry {number} must be {KEY_BYTES} bytes in base64url")
            elif name in keys:
                problems.append(f"entry {number} has the name of another entry")
            elif raw in keys.values():
                problems.append(f"entry {number} has the key of another entry")
            else:
                keys[name] = raw
        if problems:
            problems.append("`kesin secrets new-key` prints a valid entry")
            raise BadSettings(f"{SETTING}: {'; '.join(problems)}")
        return cls(keys)

    @property
    def first(self) -> str:
        """The id of the key that seals."""
        return self.ids[0]

    def seal(self, name: str, text: str) -> str:
        """Encrypt a text for storage under this name: ``v1.<key id>.<nonce>.<ciphertext>``."""
        plain = text.encode("utf-8", "surrogatepass")
        if len(plain) > MAX_SECRET_BYTES:
            raise TooLarge(
                "a secret can be at most %(most)s bytes; this one is %(n)s", most=MAX_SECRET_BYTES, n=len(plain)
            )
        nonce = secrets.token_bytes(NONCE_BYTES)
        bound_to = _associated_data(self.first, name)
        ciphertext = self._ciphers[self.first].encrypt(nonce, plain, bound_to)
        return f"{VERSION}.{self.first}.{_encode(nonce)}.{_encode(ciphertext)}"

    def open(self, name: str, sealed: str) -> str:
        """Decrypt a text sealed under this name; raises SecretKeyMissing or SecretAltered."""
        from cryptography.exceptions import InvalidTag

        parts = _SEALED.fullmatch(sealed)
        if parts is None:
            raise _secret_altered(name)
        key_id, nonce, ciphertext = parts[1], _decode(parts[2]), _decode(parts[3])
        if nonce is None or ciphertext is None:
            raise _secret_altered(name)
        if key_id not in self._ciphers:
            raise SecretKeyMissing(
                f"the secret {name!r} is sealed with the key {key_id!r}, which is not in {SETTING}:"
                " add that key back, or store the secret again",
                details={"name": name, "key": key_id},
            )
        try:
            plain = self._ciphers[key_id].decrypt(nonce, ciphertext, _associated_data(key_id, name))
        except InvalidTag:
            raise _secret_altered(name) from None
        return plain.decode("utf-8", "surrogatepass")

    def sign(self, text: str) -> str:
        """Sign a text with the first key: ``v1.<key id>.<HMAC>``."""
        return f"{VERSION}.{self.first}.{_encode(self._mac(self.first, text))}"

    def has_signed(self, text: str, signature: str) -> bool:
        """Whether a key of this ring made the signature, of this text."""
        parts = _SIGNATURE.fullmatch(signature)
        if parts is None or parts[1] not in self._signers:
            return False
        return hmac.compare_digest(_encode(self._mac(parts[1], text)), parts[2])

    def _mac(self, key_id: str, text: str) -> bytes:
        signer = self._signers[key_id].copy()
        signer.update(text.encode())
        return signer.digest()

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self.ids)})"


def key_ring(settings: Settings) -> KeyRing | None:
    """The key ring of the settings; None if no key is set."""
    if settings.secret_keys is None:
        return None
    return KeyRing.from_setting(settings.secret_keys.get_secret_value())


def new_key(name: str | None = None) -> str:
    """A new entry ``name:key`` for the setting; the name is random if none is given."""
    if name is None:
        name = f"k{secrets.token_hex(4)}"
    if not _ID.fullmatch(name):
        raise Invalid("a key's name must be %(what)s", details={"field": "name"}, what=_ID_TAKES)
    return f"{name}:{_encode(secrets.token_bytes(KEY_BYTES))}"


def signing_key_id(signature: str) -> str | None:
    """The id of the key that made a signature; None if it is none."""
    parts = _SIGNATURE.fullmatch(signature)
    return parts[1] if parts else None


def sealing_key_id(sealed: str) -> str | None:
    """The id of the key that sealed a text; None if the text is not sealed."""
    parts = _SEALED.fullmatch(sealed)
    return parts[1] if parts else None


def _secret_altered(name: str) -> SecretAltered:
    return SecretAltered(
        f"the secret {name!r} cannot be opened: it was changed in the database or belongs to "
        "another name, or its key was replaced by another key with the same name; store the secret again",
        details={"name": name},
    )


def _associated_data(key_id: str, name: str) -> bytes:
    """The data a sealed text is bound to. A key id has no NUL, so the pair is unambiguous."""
    return f"kesin secret {VERSION}\0{key_id}\0{name}".encode("utf-8", "surrogatepass")


def _encode(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _decode(text: str) -> bytes | None:
    """Decode base64url; None unless it is the canonical encoding, including spare bits."""
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except NotBase64:
        return None
    return raw if _encode(raw) == text else None
