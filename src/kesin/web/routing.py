"""Routes that are loaded after the start, or when they are first needed."""

import asyncio
from collections.abc import Callable, Sequence

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send


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
