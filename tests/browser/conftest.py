"""A real Chromium that looks at a real service: one browser a test process, one service a module.

All services of a process have one address, one after the other, so tabs are used again.

A test that wants a page signed in writes ``signed_in("operator")`` and gets one; whatever the
browser complains about meanwhile fails the test, unless it calls ``watcher.expects("…")``.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from kesin.web import live
from kesin.web.routes import operator
from kesin.workloads.pdf.engines.base import find_chromium
from tests.browser.checking import WIDE, sized
from tests.browser.contexts import Contexts
from tests.browser.served import Served
from tests.browser.watching import Watcher
from tests.web.conftest import World, _plain_logs, _quick_hashes, opened  # noqa: F401

FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-gpu",
    "--font-render-hinting=none",
    "--renderer-process-limit=1",  # all pages are ours, and a process for each tab is slow
    "--js-flags=--no-opt,--no-maglev,--single-threaded",  # no page lives long enough to gain by it
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
]
POLL_S = 0.1  # how soon changes are noticed, and sessions that ended
NAMES = {"admin": "ayse", "operator": "can", "viewer": "ece"}

NewPage = Callable[..., Page]


@pytest.fixture(scope="session")
def _chromium() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """The browser and the loop of its driver, which other tests of this process must not meet."""
    path = find_chromium()
    if path is None:
        pytest.fail("there is no Chromium: `make install` installs it, or says how")
    driver = sync_playwright().start()
    browser = driver.chromium.launch(executable_path=path, args=FLAGS)
    loop = asyncio.get_running_loop()
    asyncio._set_running_loop(None)
    yield browser, loop
    asyncio._set_running_loop(loop)
    browser.close()
    driver.stop()


@pytest.fixture
def browser(_chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """The browser; its driver's loop is this thread's own while the test runs, and not after."""
    chromium, loop = _chromium
    asyncio._set_running_loop(loop)
    yield chromium
    asyncio._set_running_loop(None)


@contextmanager
def _driving(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """The loop of the driver is this thread's own within the block, and not after."""
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    """A port for the services of this process: bound, so that no other program is given it.

    This socket never listens: while no service runs, connections are refused.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def serving(request: pytest.FixtureRequest, folder: Path) -> Iterator[Served]:
    """A service with the sites north and south."""
    port = request.getfixturevalue("port")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "POLL_S", POLL_S)
        patch.setattr(operator, "SESSION_CHECK_S", POLL_S)
        running = Served(lambda: World(opened("sqlite", folder, request, stack), folder), port)
        running.world.site("north", "south")
        yield running
        running.stop()


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One service for a module."""
    with serving(request, tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def world(served: Served) -> World:
    """The service behind the pages."""
    return served.world


@pytest.fixture
def watcher() -> Iterator[Watcher]:
    """Everything the browser complains about, checked at the end of the test."""
    watching = Watcher()
    yield watching
    assert watching.unexpected == []


@pytest.fixture(scope="session")
def _contexts(_chromium: tuple[Browser, asyncio.AbstractEventLoop], port: int) -> Iterator[Contexts]:
    chromium, loop = _chromium
    contexts = Contexts(chromium, f"http://127.0.0.1:{port}")
    yield contexts
    with _driving(loop):
        contexts.close()


@pytest.fixture
def new_page(browser: Browser, _contexts: Contexts, watcher: Watcher) -> Iterator[NewPage]:
    """Opens a tab with cookies of its own: ``new_page(language="tr", theme="dark", size=PHONE)``.

    What cannot be undone, such as a clock that was installed, wants ``once=True``.
    """
    taken: list[tuple[str, Page, bool]] = []

    def make(*, language: str = "en", theme: Any = "light", size: Any = WIDE, once: bool = False) -> Page:
        page = _contexts.take(language)
        taken.append((language, page, once))
        watcher.watch(page)
        page.context.on("page", watcher.watch)
        sized(page, size)
        page.emulate_media(color_scheme=theme)
        return page

    yield make
    for language, page, once in taken:
        watcher.leave(page)
        page.context.remove_listener("page", watcher.watch)
        if once:
            page.context.close()
        else:
            _contexts.give_back(language, page)


@pytest.fixture(scope="module")
def _admins(
    _chromium: tuple[Browser, asyncio.AbstractEventLoop], served: Served, _contexts: Contexts
) -> Iterator[Page]:
    who = served.world.known(NAMES["admin"], "admin", all_sites=True)
    with _driving(_chromium[1]):
        tab = _contexts.take("en")
        tab.context.add_cookies([served.cookie(who)])  # type: ignore[list-item]
    yield tab
    with _driving(_chromium[1]):
        _contexts.give_back("en", tab)


@pytest.fixture
def admins_tab(_admins: Page, browser: Browser, watcher: Watcher) -> Iterator[Page]:
    """One admin's tab for a whole module: for tests that look at many pages and change nothing."""
    sized(_admins, WIDE)
    watcher.watch(_admins)
    yield _admins
    watcher.leave(_admins)
    _admins.context.clear_cookies(name="kesin_language")


@pytest.fixture
def judge(browser: Browser, served: Served, _contexts: Contexts) -> Page:
    """The tab that other tabs' pages are copied to and judged in."""
    return _contexts.judge()


@pytest.fixture
def page(new_page: NewPage) -> Page:
    """A visitor's, not signed in."""
    return new_page()


@pytest.fixture
def signed_in(new_page: NewPage, served: Served) -> NewPage:
    """Somebody's page with a session: ``signed_in("viewer", name="can", sites=["north"])``.

    Without sites or queues they see all; the session is made without the form.
    """

    def sign_in(role: str = "operator", *, name: str | None = None, may: Any = None, **how: Any) -> Page:
        who = served.world.known(name or NAMES[role], role, **(may or {"all_sites": True}))
        page = new_page(**how)
        page.context.add_cookies([served.cookie(who)])  # type: ignore[list-item]
        return page

    return sign_in
