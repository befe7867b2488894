"""How Chromium is used."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from kesin.workloads.pdf import safe_fetch
from kesin.workloads.pdf.engines import browser_process, network_guard

Isolation = Literal["page", "context"]
Sandbox = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class ChromiumSettings:
    """``page`` prints one document after the other in one page: safe while none can run a script
    or reach the network. ``context`` gives each a process and a profile of its own, and is used
    whenever scripts run or URLs are allowed.
    """  # noqa: D205 - the two words first, they are what one looks for

    executable: str = ""  # else the first found on PATH, else Playwright's own
    isolation: Isolation = "page"
    sandbox: Sandbox = "auto"  # on, unless we are root, where Chromium refuses it
    javascript: bool = False
    allowed: Callable[[str], bool] | None = None  # which URLs are fetched; none without it
    fetch: network_guard.Fetch = safe_fetch.fetch
    locale: str = "en-US"  # of documents that name no language; `lang` in the template wins
    time_zone: str = "UTC"
    viewport: tuple[int, int] = (1280, 720)
    page_renders: int = 100
    browser_renders: int = 500
    browser_age_s: float = 3600.0
    memory_growth_mib: int = 512  # over what the browser had after its first document
    walls: frozenset[network_guard.Wall] = network_guard.ALL_WALLS  # fewer only to test the others
    sweep: Callable[[], Any] = browser_process.sweep_profiles

    @property
    def isolation_used(self) -> Isolation:
        """`page` only where nothing can be carried from one document to the next."""
        if self.javascript or self.allowed is not None:
            return "context"
        return self.isolation

    @property
    def sandboxed(self) -> bool:
        """Whether Chromium is started with its sandbox."""
        return os.getuid() != 0 if self.sandbox == "auto" else self.sandbox == "on"
