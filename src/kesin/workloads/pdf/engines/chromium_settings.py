"""The settings of the Chromium engine."""

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
    """How Chromium is started and how documents are isolated from each other.

    ``page`` prints all documents in the same page: safe while none can run a script or reach the
    network. ``context`` gives each document a process and a profile of its own, and is used
    whenever scripts run or URLs are allowed.
    """

    executable: str = ""  # empty: the first on PATH, else Playwright's own
    isolation: Isolation = "page"
    sandbox: Sandbox = "auto"  # on, unless we are root: Chromium refuses to sandbox root
    javascript: bool = False
    is_url_allowed: Callable[[str], bool] | None = None  # which URLs are fetched; None: no URL
    new_fetch: Callable[[], network_guard.Fetch] = lambda: safe_fetch.fetch  # for each document
    page_renders: int = 100
    browser_renders: int = 500
    browser_age_s: float = 3600.0
    memory_growth_mib: int = 512  # over the browser's memory after its first document
    guard_layers: frozenset[network_guard.GuardLayer] = network_guard.ALL_LAYERS  # fewer in tests
    delete_stale_profiles: Callable[[], Any] = browser_process.delete_stale_profiles

    @property
    def isolation_used(self) -> Isolation:
        """`page` only where a document cannot leave anything to the next."""
        shared = not self.javascript and self.is_url_allowed is None
        return self.isolation if shared else "context"

    @property
    def sandboxed(self) -> bool:
        return os.getuid() != 0 if self.sandbox == "auto" else self.sandbox == "on"
