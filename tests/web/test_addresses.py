"""The address of a request, with and without a trusted proxy in front."""

from pathlib import Path
from types import SimpleNamespace

from starlette.requests import Request

from kesin.foundation.settings import Settings
from kesin.web.auth import address_of
from tests.tables import table
from tests.web.client import PROXY

PROXIES = f" {PROXY} , ::1,"


def address(peer: str | None, *forwarded: str, proxies: str = "") -> str:
    settings = Settings(data_dir=Path("unused"), trusted_proxies=proxies)
    state = SimpleNamespace(service=SimpleNamespace(settings=settings))
    return address_of(
        Request(
            {
                "type": "http",
                "app": SimpleNamespace(state=state),
                "client": None if peer is None else (peer, 1),
                "headers": [(b"x-forwarded-for", line.encode()) for line in forwarded],
            }
        )
    )


@table(
    ("peer", "forwarded", "expected"),
    [
        ("203.0.113.9", (), "203.0.113.9"),
        ("203.0.113.9", ("10.0.0.1",), "203.0.113.9"),  # not a trusted proxy
        (PROXY, (), PROXY),
        (PROXY, ("10.0.0.1",), "10.0.0.1"),
        (PROXY, ("6.6.6.6, 10.0.0.1",), "10.0.0.1"),  # the first is the caller's claim
        (PROXY, ("6.6.6.6", "10.0.0.1"), "10.0.0.1"),  # from a proxy that adds a line
        (PROXY, ("6.6.6.6, 10.0.0.1, ::1",), "10.0.0.1"),  # two trusted proxies
        (PROXY, ("::1",), "::1"),
        (PROXY, ("2001:db8::7",), "2001:db8::7"),
        (PROXY, ("nonsense",), PROXY),
        (PROXY, ("10.0.0.1, nonsense",), PROXY),
        (PROXY, ("",), PROXY),
        ("0:0:0:0:0:0:0:1", ("10.0.0.1",), "10.0.0.1"),
        ("unix", ("10.0.0.1",), "unix"),
    ],
)
def test_the_address_is_the_last_one_that_is_no_trusted_proxy(peer, forwarded, expected):
    assert address(peer, *forwarded, proxies=PROXIES) == expected


def test_without_trusted_proxies_no_header_is_believed():
    assert address("127.0.0.1", "10.0.0.1") == "127.0.0.1"
    assert address(None) == "unknown"
