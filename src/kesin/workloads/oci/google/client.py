"""Authorised requests to Google for a site, and what their failures mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import httpx

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.google import channel, http
from kesin.workloads.oci.google.classify import classify_response
from kesin.workloads.oci.google.credentials import GoogleCredentials
from kesin.workloads.oci.google.oauth import AccessTokens, TokenRefused


class GoogleChannel(channel.Channel):
    """A channel that sends requests with the access token of the given credentials."""

    def __init__(
        self,
        client: httpx.Client,
        tokens: AccessTokens,
        *,
        base_url: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._http = http.BoundedHttpClient(client, monotonic=monotonic)
        self._tokens = tokens

    def precheck(self, credentials: GoogleCredentials) -> channel.ConnectionTrouble | None:
        """The trouble with the access token, if there is none to be had."""
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
    ) -> http.GoogleResponse | channel.RequestFailure:
        """Send a request; if Google rejects the token, send it once more with a new one."""
        url = f"{self._base_url}/{path}"
        for is_last in (False, True):
            try:
                token = self._tokens.get(credentials)
            except TokenRefused as problem:
                return _token_failure(problem)
            all_headers = {**(headers or {}), "Authorization": f"Bearer {token}"}
            response = self._http.request(method, url, headers=all_headers, **request)
            if isinstance(response, http.NoResponse):
                return _no_response_failure(response)
            if is_last or response.status != http.UNAUTHENTICATED:
                return response
            self._tokens.forget(credentials, token)
        raise AssertionError("the second attempt returns")


def failure_of(response: http.GoogleResponse) -> channel.RequestFailure:
    """The failure of a response that is not 200."""
    refused, kind = classify_response(response.status, response.body)
    refused = replace(refused, note=event_note(response.request_id))
    if kind is None:
        return channel.RequestFailure(refused)
    wait_s = http.retry_after_s(response)
    return channel.RequestFailure(
        refused, channel.ConnectionTrouble(kind, refused.code, refused.message, wait_s)
    )


def event_note(request_id: str, **more: Any) -> dict[str, Any] | None:
    """Build the note of a row's event, for Google's support."""
    note = {"requestId": request_id, **more} if request_id else more
    return note or None


def _token_failure(problem: TokenRefused) -> channel.RequestFailure:
    kind: channel.TroubleKind = "TRANSIENT" if problem.transient else "AUTH"
    return _failure(problem.code, problem.message, kind, channel.NOT_SENT)


def _no_response_failure(problem: http.NoResponse) -> channel.RequestFailure:
    if problem.code == http.UNSENDABLE:
        return _failure(problem.code, problem.message, "AUTH", channel.NOT_SENT)
    return _failure(problem.code, problem.message, "TRANSIENT")


def _failure(
    code: str, message: str, kind: channel.TroubleKind, note: Mapping[str, Any] | None = None
) -> channel.RequestFailure:
    """A failure of the whole request, which is also the trouble of the site."""
    refused = channel.RowRefused(code, message, Category(kind), note)
    return channel.RequestFailure(refused, channel.ConnectionTrouble(kind, code, message))
