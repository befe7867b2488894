"""A site's Google credentials, sealed as a whole, and the access tokens that they give."""

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid
from kesin.foundation.text import storable
from kesin.workloads.oci.conversions.actions import ConversionAction
from kesin.workloads.oci.google.http import OK, BoundedHttpClient, NoResponse, dig, text_at

_DIGITS: Final = re.compile(r"[0-9]{6,20}")
_ACTION: Final = re.compile(r"customers/[0-9]+/conversionActions/[0-9]+")
_MAX_LENGTH: Final = 4_096


@dataclass(frozen=True, slots=True, repr=False)
class GoogleCredentials:
    """An OAuth client, a refresh token and the conversion action to upload to."""

    customer_id: str
    client_id: str
    client_secret: str
    refresh_token: str
    conversion_action_resource_name: str
    developer_token: str = ""  # ignored by Google since September 2026
    login_customer_id: str = ""  # the manager account, if access goes through one

    def __repr__(self) -> str:
        """Without secrets: this may end up in a log."""
        return f"GoogleCredentials(customer_id={self.customer_id!r}, …)"

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Validate a document; raises Invalid naming the field, never its value."""
        names = [*cls.__dataclass_fields__]
        for name in document:
            if name not in names:
                why = Message("is not a credential: expected %(known)s", known=", ".join(names))
                raise _invalid(name[:64], why)
        values = {}
        for name in names:
            value = document.get(name)
            value = str(value) if isinstance(value, int) else value
            value = value.strip() if isinstance(value, str) else value
            if value is None or value == "":
                if name not in {"developer_token", "login_customer_id"}:
                    raise _invalid(name, "is missing")
                value = ""
            if not isinstance(value, str) or len(value) > _MAX_LENGTH or not value.isprintable():
                raise _invalid(name, "must be one line of text")
            values[name] = value
        for name in ("customer_id", "login_customer_id"):
            is_empty = not values[name]  # allowed above for login_customer_id
            values[name] = values[name].replace("-", "").replace(" ", "")
            if not is_empty and not _DIGITS.fullmatch(values[name]):
                raise _invalid(name, "must be a Google Ads account such as 123-456-7890")
        if not _ACTION.fullmatch(values[name := "conversion_action_resource_name"]):
            shape = Message("must look like customers/1234567890/conversionActions/987654321")
            raise _invalid(name, shape)
        return cls(**values)

    def resource_name(self, action: ConversionAction | None) -> str:
        """Google's name of a conversion action; without one, of the only one of the site."""
        if action is None:
            return self.conversion_action_resource_name
        return f"customers/{self.customer_id}/conversionActions/{action.id}"

    def to_text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


def vault_name(site_id: str) -> str:
    return f"oci/{site_id}"


def _invalid(field: str, problem: str) -> Invalid:
    why, details = Message(problem), {"field": field}
    return Invalid("%(field)s %(problem)s", code="bad_credentials", details=details, field=field, problem=why)


RENEW_EARLY_S: Final = 60.0  # before a token expires
DEFAULT_LIFETIME_S: Final = 300.0  # of a token without expires_in
MAX_CACHED_TOKENS: Final = 1_000  # expired ones are dropped first
_MAX_MESSAGE: Final = 300
_TOO_MANY, _TIMEOUT, _CLIENT, _SERVER = 429, 408, 400, 500
_TRANSIENT_ERRORS: Final = ("temporarily_unavailable", "server_error", "internal_failure")
_SECRETS: Final = ("client_id", "client_secret", "refresh_token")


class TokenRefused(Exception):
    """No access token was issued; ``transient`` says whether a retry may help."""

    def __init__(self, code: str, message: str, *, transient: bool) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.transient = transient


@dataclass(slots=True, repr=False)
class _CachedToken:
    lock: threading.Lock = field(default_factory=threading.Lock)
    token: str = ""
    expires_at: float = 0.0


class AccessTokens:
    """A cache of access tokens by credentials; thread-safe."""

    def __init__(self, client: BoundedHttpClient, url: str) -> None:
        self._http = client
        self._url = url
        self._lock = threading.Lock()
        self._cache: dict[bytes, _CachedToken] = {}

    def get(self, credentials: GoogleCredentials) -> str:
        """Return a token valid for a minute, fetched by the first thread; raises TokenRefused."""
        entry = self._entry(credentials)
        with entry.lock:
            if not entry.token or self._http.monotonic() >= entry.expires_at:
                entry.token = ""
                entry.token, lifetime_s = self._fetch(credentials)
                entry.expires_at = self._http.monotonic() + lifetime_s - RENEW_EARLY_S
            return entry.token

    def forget(self, credentials: GoogleCredentials, token: str) -> None:
        """Drop a token that Google rejected, unless another thread has replaced it."""
        entry = self._entry(credentials)
        with entry.lock:
            if entry.token == token:
                entry.token = ""

    def _entry(self, credentials: GoogleCredentials) -> _CachedToken:
        parts = "\0".join(getattr(credentials, name) for name in _SECRETS)
        key = hashlib.sha256(parts.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            if key not in self._cache and len(self._cache) >= MAX_CACHED_TOKENS:
                now = self._http.monotonic()
                for other, entry in list(self._cache.items()):
                    if not entry.lock.locked() and (not entry.token or entry.expires_at <= now):
                        del self._cache[other]
            return self._cache.setdefault(key, _CachedToken())

    def _fetch(self, credentials: GoogleCredentials) -> tuple[str, float]:
        secrets = {name: getattr(credentials, name) for name in _SECRETS}
        form = {"grant_type": "refresh_token", **secrets}
        response = self._http.request("POST", self._url, data=form)
        if isinstance(response, NoResponse):
            message = Message("the token endpoint: %(problem)s", problem=Message(response.message))
            raise TokenRefused("TOKEN_UNAVAILABLE", message, transient=True)
        token = text_at(response.body, "access_token")
        if response.status == OK and token:
            return token, _lifetime_s(dig(response.body, "expires_in"))
        raise _refusal(response.status, response.body, credentials)


def _lifetime_s(seconds: Any) -> float:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return float(seconds) if is_number and 0 <= seconds < 10**6 else DEFAULT_LIFETIME_S


def _refusal(status: int, body: Any, credentials: GoogleCredentials) -> TokenRefused:
    """The refusal is final only if Google names a problem of the credentials."""
    error = dig(body, "error")
    is_named = isinstance(error, str) and error not in _TRANSIENT_ERRORS
    final = _CLIENT <= status < _SERVER and status not in {_TIMEOUT, _TOO_MANY} and is_named
    if not final:
        message: str = Message("the token endpoint returned %(status)s", status=status)
        return TokenRefused("TOKEN_UNAVAILABLE", message, transient=True)
    description = text_at(body, "error_description")
    message = f"{error}: {description}" if description else str(error)
    for secret in (credentials.client_secret, credentials.refresh_token):
        message = message.replace(secret, "…") if secret else message
    code = "INVALID_GRANT" if error == "invalid_grant" else "TOKEN_REFUSED"
    return TokenRefused(code, storable(message)[:_MAX_MESSAGE], transient=False)
