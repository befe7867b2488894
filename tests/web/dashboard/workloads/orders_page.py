"""The pages of cutting orders, as a user asks for them."""

from typing import Any

from tests.web.conftest import World

PAGE = "/dashboard/optiplan"


def get(world: World, path: str = "", who: str = "can") -> Any:
    return world.client.get(PAGE + path, headers=world.cookie(who))


def post(world: World, path: str, who: str = "can", **sent: Any) -> Any:
    return world.client.post(PAGE + path, headers=world.cookie(who), **sent)
