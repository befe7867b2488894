"""Authorised requests to Google for a site, and what their failures mean."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.google import http
from kesin.workloads.oci.google.channel import (
    NOT_SENT,
    Channel,
    ConnectionTrouble,
    RequestFailure,
    RowRefused,
    TroubleKind,
)
from kesin.workloads.oci.google.classify import classify_response
from kesin.workloads.oci.google.credentials import GoogleCredentials
from kesin.workloads.oci.google.http import GoogleResponse
from kesin.workloads.oci.google.oauth import AccessTokens, TokenRefused


class GoogleChannel(Channel):
    """What the channels to Google share: an address, and requests with a site's access token."""

    def __init__(self, client: http.BoundedHttpClient, tokens: AccessTokens, base_url: str) -> None:
        self._http = client
        self._tokens = tokens
        self._base_url = base_url

    def precheck(self, credentials: GoogleCredentials) -> ConnectionTrouble | None:
        """The problem with the access token, if none was issued."""
        try:
            self._tokens.get(credentials)
        except TokenRefused as problem:
            return _token_failure(problem).trouble
        return None

    def _send(
        self,
        credentials: GoogleCredentials,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        **request: Any,
    ) -> GoogleResponse | RequestFailure:
        """Send a request; if Google rejects the token, send it once more with a new one."""
        for is_last in (False, True):
            try:
                token = self._tokens.get(credentials)
            except TokenRefused as problem:
                return _token_failure(problem)
            all_headers = {**(headers or {}), "Authorization": f"Bearer {token}"}
            url = f"{self._base_url}/{path}"
            response = self._http.request(method, url, headers=all_headers, **request)
            if isinstance(response, http.NoResponse):
                sent = response.code != http.UNSENDABLE
                kind: TroubleKind = "TRANSIENT" if sent else "AUTH"
                return _failure(response.code, response.message, kind, sent=sent)
            if is_last or response.status != http.UNAUTHENTICATED:
                return response
            self._tokens.forget(credentials, token)
        raise AssertionError("the second attempt returns")


def failure_of(response: GoogleResponse) -> RequestFailure:
    """The failure of a response that is not 200."""
    refused, kind = classify_response(response.status, response.body)
    refused = replace(refused, note=event_note(response.request_id))
    if kind is None:
        return RequestFailure(refused)
    wait_s = http.retry_after_s(response)
    return RequestFailure(refused, ConnectionTrouble(kind, refused.code, refused.message, wait_s))


def event_note(request_id: str, **more: Any) -> dict[str, Any] | None:
    """Build the note of a row's event, for Google support."""
    return {"requestId": request_id, **more} if request_id else more or None


def _failure(code: str, message: str, kind: TroubleKind, *, sent: bool) -> RequestFailure:
    refused = RowRefused(code, message, Category(kind), None if sent else NOT_SENT)
    return RequestFailure(refused, ConnectionTrouble(kind, code, message))


def _token_failure(problem: TokenRefused) -> RequestFailure:
    kind: TroubleKind = "TRANSIENT" if problem.transient else "AUTH"
    return _failure(problem.code, problem.message, kind, sent=False)
