"""OAuth access tokens: fetched with the refresh token, kept until they near their end.

No secret is ever part of a message, a name or a ``repr`` here.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from kesin.foundation.text import storable
from kesin.workloads.oci.google.credentials import Credentials
from kesin.workloads.oci.google.http import OK, Unreached, Wire

EARLY_S: Final = 60.0  # a token is renewed so long before it ends
UNSAID_S: Final = 300.0  # the life of a token that does not tell
KEPT: Final = 1_000  # tokens of other credentials; the ended ones go first
_MESSAGE: Final = 300
_TOO_MANY, _TIMEOUT, _CLIENT, _SERVER = 429, 408, 400, 500
_PASSING: Final = frozenset({"temporarily_unavailable", "server_error", "internal_failure"})


class TokenRefused(Exception):
    """There is no access token; ``transient`` says whether waiting may help."""

    def __init__(self, code: str, message: str, *, transient: bool) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.transient = transient


@dataclass(slots=True, repr=False)
class _Kept:
    lock: threading.Lock = field(default_factory=threading.Lock)
    token: str = ""
    ends_at: float = 0.0


class Tokens:
    """Access tokens by credentials; safe to share between threads."""

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._wire = Wire(client, monotonic=monotonic)
        self._url = url
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: dict[bytes, _Kept] = {}

    def get(self, credentials: Credentials) -> str:
        """A token that is good for another minute; raises TokenRefused.

        Of several threads that want the same one, the first fetches it and the others wait.
        """
        kept = self._place(credentials)
        with kept.lock:
            if not kept.token or self._monotonic() >= kept.ends_at:
                kept.token = ""
                kept.token, lasts_s = self._fetch(credentials)
                kept.ends_at = self._monotonic() + lasts_s - EARLY_S
            return kept.token

    def forget(self, credentials: Credentials, token: str) -> None:
        """Google did not take it: fetch another next time, unless another thread has already."""
        kept = self._place(credentials)
        with kept.lock:
            if kept.token == token:
                kept.token = ""

    def _place(self, credentials: Credentials) -> _Kept:
        parts = (credentials.client_id, credentials.client_secret, credentials.refresh_token)
        key = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            if key not in self._kept and len(self._kept) >= KEPT:
                now = self._monotonic()
                self._kept = {
                    one: kept
                    for one, kept in self._kept.items()
                    if kept.lock.locked() or (kept.token and kept.ends_at > now)
                }
            return self._kept.setdefault(key, _Kept())

    def _fetch(self, credentials: Credentials) -> tuple[str, float]:
        form = {
            "grant_type": "refresh_token",
            "client_id": credentials.client_id,
            "client_secret": credentials.client_secret,
            "refresh_token": credentials.refresh_token,
        }
        answer = self._wire.exchange("POST", self._url, data=form)
        if isinstance(answer, Unreached):
            message = f"the token endpoint: {answer.message}"
            raise TokenRefused("TOKEN_UNAVAILABLE", message, transient=True)
        told = answer.body if isinstance(answer.body, dict) else {}
        token = told.get("access_token")
        if answer.status == OK and isinstance(token, str) and token:
            return token, _seconds(told.get("expires_in"))
        raise _refusal(answer.status, told, credentials)


def _seconds(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 10**6:
        return UNSAID_S
    return float(given)


def _refusal(status: int, told: dict[str, Any], credentials: Credentials) -> TokenRefused:
    """Google names what is wrong with the credentials; whatever has no such name may pass."""
    error = told.get("error")
    named = isinstance(error, str) and error not in _PASSING
    final = _CLIENT <= status < _SERVER and status not in {_TIMEOUT, _TOO_MANY} and named
    if not final:
        message = f"the token endpoint answered {status}"
        return TokenRefused("TOKEN_UNAVAILABLE", message, transient=True)
    said = told.get("error_description")
    message = f"{error}: {said}" if isinstance(said, str) and said else str(error)
    for secret in (credentials.client_secret, credentials.refresh_token):
        message = message.replace(secret, "…") if secret else message
    code = "INVALID_GRANT" if error == "invalid_grant" else "TOKEN_REFUSED"
    return TokenRefused(code, storable(message)[:_MESSAGE], transient=False)
