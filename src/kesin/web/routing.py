"""Routes that are loaded or analysed when they are needed: few are, before the first answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from typing import Any, Final

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match, compile_path, get_name
from starlette.types import Receive, Scope, Send

_ANALYSING: Final = RLock()  # the schema is made in a thread


class LazyRoute(APIRoute):
    """A route that knows its path and methods; reading what else it has analyses its endpoint."""

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, methods: Any = None, **options: Any
    ) -> None:
        options["methods"] = methods
        self._analyse: Callable[[], None] | None = partial(
            super().__init__, path, endpoint, **options
        )
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in methods or ["GET"]}
        self.name = options.get("name") or get_name(endpoint)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            with _ANALYSING:
                if self._analyse is not None:
                    analyse, self._analyse = self._analyse, None  # it reads attributes itself
                    try:
                        analyse()
                    except BaseException:
                        self._analyse = analyse
                        raise
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"a route has no {name}", name=name, obj=self)


class LateRoutes(BaseRoute):
    """Stands, as the last route, for others that are not loaded yet; requests for them wait."""

    def __init__(self, routes: list[BaseRoute], load: Callable[[], Sequence[BaseRoute]]) -> None:
        self._routes, self._load = routes, load
        self._loading: asyncio.Future[None] | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return Match.FULL if scope["type"] == "http" else Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.load()
        await scope["app"].router(scope, receive, send)

    async def load(self) -> None:
        """Load them in a thread, once, and put them in the place of this route."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._replace())
        await asyncio.shield(self._loading)

    async def _replace(self) -> None:
        loaded = await asyncio.to_thread(self._load)
        place = self._routes.index(self)  # a workload may have added a router behind it
        self._routes[place : place + 1] = loaded


async def load_routes(routes: Sequence[BaseRoute]) -> None:
    """Load those that were left for later, or wait until they are."""
    for route in list(routes):
        if isinstance(route, LateRoutes):
            await route.load()
