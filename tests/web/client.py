"""The client every test of the doors speaks through; cookies are sent only when a test says so."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import start_blocking_portal
from fastapi import FastAPI

with warnings.catch_warnings():  # starlette would rather have httpx2, which is the same to us
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

HOST = "kesin.test"
ADDRESS = "192.0.2.7"


class Client(TestClient):
    """Comes from ``address``, forgets every cookie, and shows a 500 instead of raising it."""

    def __init__(self, app: FastAPI, *, address: str = ADDRESS, scheme: str = "http") -> None:
        super().__init__(
            app,
            base_url=f"{scheme}://{HOST}",
            raise_server_exceptions=False,
            client=(address, 50_000),
            follow_redirects=False,
        )

    @contextmanager
    def kept(self) -> Iterator[None]:
        """One event loop for all requests of the block; without it, each has its own."""
        with start_blocking_portal() as self.portal:
            yield
        self.portal = None

    def request(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        try:
            return super().request(*args, **kwargs)
        finally:
            self.cookies.clear()
