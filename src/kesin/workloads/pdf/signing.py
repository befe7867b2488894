"""Signatures as Standard Webhooks has them: who holds the secret knows that a message is ours.

Signed are the message's id, the time of the try and the body, byte by byte. The id is the same on
every try, so a receiver that has seen it before can leave the message alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

from kesin.foundation.clock import wall_clock_us
from kesin.lifecycle.budget import MINUTE_S, SECOND_US

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"
PREFIX: Final = "whsec_"
TOLERANCE_S: Final = 5 * MINUTE_S  # between the sender's clock and the receiver's
_VERSION: Final = "v1"
_SECONDS: Final = re.compile(r"[0-9]{1,15}")


def secret_of(master: str, owner: str) -> str:
    """An owner's own secret: no two share one, and none leads back to the master."""
    made = hmac.digest(master.encode(), f"kesin webhook {owner}".encode(), "sha256")
    return PREFIX + base64.b64encode(made).decode()


def signed(secret: str, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """The headers that go with a body."""
    return {
        ID: message_id,
        TIMESTAMP: str(at_s),
        SIGNATURE: f"{_VERSION},{_signature(_key(secret), message_id, str(at_s), body)}",
    }


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, *, now_s: float | None = None
) -> bool:
    """Whether a message is the sender's and not an old one; for receivers.

    Several signatures may stand in one header, while a secret is being changed: one must fit.
    """
    given = {name.lower(): value for name, value in headers.items()}
    message_id, at, told = (given.get(name, "") for name in (ID, TIMESTAMP, SIGNATURE))
    now = wall_clock_us() / SECOND_US if now_s is None else now_s
    if not message_id or not _SECONDS.fullmatch(at) or abs(now - int(at)) > TOLERANCE_S:
        return False
    wanted = f"{_VERSION},{_signature(_key(secret), message_id, at, body)}".encode()
    return any(
        hmac.compare_digest(wanted, one.encode("utf-8", "replace")) for one in told.split(" ")
    )


def _signature(key: bytes, message_id: str, at: str, body: bytes) -> str:
    signed_text = f"{message_id}.{at}.".encode("utf-8", "replace")
    made = hmac.new(key, signed_text + body, hashlib.sha256)
    return base64.b64encode(made.digest()).decode()


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"a secret is {PREFIX} and base64") from None
