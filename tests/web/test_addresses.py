"""Whose address a request has, with and without a proxy of ours in front."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from kesin.web.auth import address_of
from tests.web.client import PROXY
from tests.web.conftest import World


def address(world: World, peer: str, *told: str) -> str:
    lines = [(b"x-forwarded-for", one.encode()) for one in told]
    scope = {"type": "http", "app": world.app, "client": (peer, 1), "headers": lines}
    return address_of(Request(scope))


@pytest.mark.parametrize(
    ("peer", "told", "found"),
    [
        ("203.0.113.9", (), "203.0.113.9"),
        ("203.0.113.9", ("10.0.0.1",), "203.0.113.9"),  # nobody we trust
        (PROXY, (), PROXY),
        (PROXY, ("10.0.0.1",), "10.0.0.1"),
        (PROXY, ("6.6.6.6, 10.0.0.1",), "10.0.0.1"),  # the first is the caller's own word
        (PROXY, ("6.6.6.6", "10.0.0.1"), "10.0.0.1"),  # as a proxy that adds a line says it
        (PROXY, ("6.6.6.6, 10.0.0.1, ::1",), "10.0.0.1"),  # two proxies we trust
        (PROXY, ("::1",), "::1"),
        (PROXY, ("2001:db8::7",), "2001:db8::7"),
        (PROXY, ("nonsense",), PROXY),
        (PROXY, ("10.0.0.1, nonsense",), PROXY),
        (PROXY, ("",), PROXY),
        ("0:0:0:0:0:0:0:1", ("10.0.0.1",), "10.0.0.1"),
        ("unix", ("10.0.0.1",), "unix"),
    ],
)
def test_the_address_is_the_last_one_that_is_no_proxy_of_ours(peer, told, found, make_world):
    world = make_world(trusted_proxies=f" {PROXY} , ::1,")
    assert address(world, peer, *told) == found


def test_without_trusted_proxies_nobody_is_believed(world):
    assert address(world, "127.0.0.1", "10.0.0.1") == "127.0.0.1"


def test_a_request_without_a_peer_has_an_address_too(world):
    scope = {"type": "http", "app": world.app, "client": None, "headers": []}
    assert address_of(Request(scope)) == "unknown"
