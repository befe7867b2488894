"""The users of the demonstration, and the API key of its shop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kesin.engine.access.accounts import Accounts
from kesin.foundation.passwords import one_time_password
from kesin.workloads.common.demo import DEMO_ACTOR

ADMIN: Final = "admin"
OPERATOR: Final = "ayse"


def create_users(accounts: Accounts, queues: Iterable[str]) -> dict[str, str]:
    """Create an admin and an operator of these queues; name → password."""
    passwords = {ADMIN: one_time_password(), OPERATOR: one_time_password()}
    accounts.add_user(DEMO_ACTOR, ADMIN, passwords[ADMIN], role="admin", all_sites=True)
    accounts.add_user(
        DEMO_ACTOR,
        OPERATOR,
        passwords[OPERATOR],
        role="operator",
        all_sites=True,
        queues=tuple(queues),
    )
    return passwords


def create_shop_key(accounts: Accounts, scopes: tuple[str, ...]) -> str:
    """Create the API key of the shop's program; '' if it needs no scope."""
    if not scopes:
        return ""
    key, _ = accounts.create_key(DEMO_ACTOR, "the shop's desk", scopes, days=1)
    return key
