"""A line to Google in the name of a site: requests with its token, and what their errors mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import httpx

from kesin.lifecycle.errors import Category
from kesin.workloads.oci.google.channel import NOT_SENT, Refused, Trouble
from kesin.workloads.oci.google.classify import judge_status
from kesin.workloads.oci.google.credentials import Credentials
from kesin.workloads.oci.google.http import (
    UNAUTHENTICATED,
    UNSENDABLE,
    Answer,
    Unreached,
    Wire,
    retry_after_s,
)
from kesin.workloads.oci.google.oauth import TokenRefused, Tokens


class Failure(NamedTuple):
    """A request that failed as a whole: what it says of each row, and of the site.

    Without ``trouble`` Google refused it for some of its rows and named none of them.
    """

    refused: Refused
    trouble: Trouble | None = None


class Line:
    """Sends with the token of whoever's credentials are given."""

    def __init__(
        self,
        client: httpx.Client,
        tokens: Tokens,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        self._wire = Wire(client, monotonic=monotonic)
        self._tokens = tokens

    def ready(self, credentials: Credentials) -> Trouble | None:
        """What keeps us from asking at all: there is no token to be had."""
        try:
            self._tokens.get(credentials)
        except TokenRefused as problem:
            return _without_token(problem).trouble
        return None

    def ask(
        self,
        credentials: Credentials,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        **request: Any,
    ) -> Answer | Failure:
        """Ask, and once more with a new token when Google does not take this one."""
        for last in (False, True):
            try:
                token = self._tokens.get(credentials)
            except TokenRefused as problem:
                return _without_token(problem)
            told = {**(headers or {}), "Authorization": f"Bearer {token}"}
            answer = self._wire.exchange(method, url, headers=told, **request)
            if isinstance(answer, Unreached):
                return _unreached(answer)
            if last or answer.status != UNAUTHENTICATED:
                return answer
            self._tokens.forget(credentials, token)
        raise AssertionError("two tries answer")


def failure_of(answer: Answer) -> Failure:
    """An answer that is no 200."""
    refused, kind = judge_status(answer.status, answer.body)
    refused = replace(refused, note=note_of(answer.request_id))
    if kind is None:
        return Failure(refused)
    wait_s = retry_after_s(answer)
    return Failure(refused, Trouble(kind, refused.code, refused.message, wait_s))


def note_of(request_id: str, **more: Any) -> dict[str, Any] | None:
    """What is kept with a row's event, for Google's support."""
    note = {"requestId": request_id, **more} if request_id else more
    return note or None


def _without_token(problem: TokenRefused) -> Failure:
    if problem.transient:
        refused = Refused(problem.code, problem.message, Category.TRANSIENT, NOT_SENT)
        return Failure(refused, Trouble("TRANSIENT", problem.code, problem.message))
    refused = Refused(problem.code, problem.message, Category.AUTH, NOT_SENT)
    return Failure(refused, Trouble("AUTH", problem.code, problem.message))


def _unreached(what: Unreached) -> Failure:
    if what.code == UNSENDABLE:
        refused = Refused(what.code, what.message, Category.AUTH, NOT_SENT)
        return Failure(refused, Trouble("AUTH", what.code, what.message))
    refused = Refused(what.code, what.message, Category.TRANSIENT)
    return Failure(refused, Trouble("TRANSIENT", what.code, what.message))
