"""What the PDF page works with: templates, jobs, and values that wait a minute to be looked at.

A frame shows only what has an address, and values are sent, not addressed: they are kept here under
a name nobody can guess, for whoever sent them, in this process alone.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fastapi import FastAPI

from kesin.foundation.problems import Unknown
from kesin.web.dashboard.of_app import once
from kesin.web.service import Service

if TYPE_CHECKING:
    from kesin.workloads.pdf.shop import Tools

KEPT_S: Final = 120.0
MOST_KEPT: Final = 64  # of everybody, each at most as large as a form
MOST_OF_ONE: Final = 8


class Kept(NamedTuple):
    """Values somebody wants to look at."""

    owner: str
    template: str
    variables: dict[str, Any]
    until: float


class PdfDesk:
    """One for an app."""

    def __init__(self, service: Service) -> None:
        from kesin.workloads.pdf.shop import Shop

        self._shop = Shop(service.house(service.workloads["pdf"]))
        self._monotonic = service.clock.monotonic
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def tools(self) -> Tools:
        """Opened at the first question; raises Unavailable with what to install."""
        return self._shop.tools

    def keep(self, owner: str, template: str, variables: dict[str, Any]) -> str:
        """The name under which these values can be looked at."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            mine = [name for name, one in self._kept.items() if one.owner == owner]
            for old in mine[: max(0, len(mine) - MOST_OF_ONE + 1)]:
                del self._kept[old]
            while len(self._kept) >= MOST_KEPT:
                self._kept.popitem(last=False)
            self._kept[token] = Kept(owner, template, variables, self._monotonic() + KEPT_S)
        return token

    def kept(self, owner: str, token: str) -> Kept:
        """What lies there; another's looks like nothing."""
        with self._lock:
            found = self._kept.get(token)
            if found is None or found.owner != owner or found.until < self._monotonic():
                raise Unknown("this preview is over: change a value to see it again")
            return found


def desk_of(app: FastAPI, service: Service) -> PdfDesk:
    """The app's own."""
    return once(app, "pdf_desk", lambda: PdfDesk(service))
