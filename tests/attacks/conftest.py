"""Attacks on a real service: one process a module, on SQLite; with ``--long`` on PostgreSQL too.

Each test records what it tried. The long form, and any run with ``-s``, ends with a table of that.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.attacks.target import Target, serving
from tests.browser.conftest import _chromium, browser, watcher  # noqa: F401  # fixtures
from tests.web.conftest import _plain_logs, _quick_hashes  # noqa: F401  # fixtures
from tests.web.serving import own_settings

TRIED = "tried"
TITLE = "what the attacks tried"
_numbers = itertools.count(1)

Record = Callable[[str, Counter[Any]], None]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def database(request: pytest.FixtureRequest) -> str:
    """The kind of database behind the service."""
    kind: str = request.param
    return kind


@pytest.fixture(scope="module")
def target(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    database: str,
    _quick_hashes: None,  # noqa: F811
) -> Iterator[Target]:
    """A service; ``SETTINGS`` of the module are its environment variables."""
    folder = tmp_path_factory.mktemp("attacked")
    with pytest.MonkeyPatch.context() as patch:
        own_settings(patch, folder)
        (folder / "data").mkdir()
        if database == "postgres":
            server = request.getfixturevalue("postgres_server")
            ready = request.getfixturevalue("ready_postgres")
            name = f"attacked_{os.getpid()}_{next(_numbers)}"
            patch.setenv("KESIN_DATABASE_URL", server.create_database(name, like=ready))
        else:
            shutil.copyfile(request.getfixturevalue("ready_file"), folder / "data" / "kesin.db")
        settings: dict[str, str] = getattr(request.module, "SETTINGS", {})
        with serving(folder, **settings) as running:
            yield running


@pytest.fixture
def is_long(request: pytest.FixtureRequest) -> bool:
    """Whether everything is tried, and not a fixed sample."""
    return bool(request.config.getoption("--long"))


@pytest.fixture
def record(request: pytest.FixtureRequest, record_property: Any) -> Record:
    """Note the answers to an attack, for the table: ``record("bombs", Counter({413: 3}))``."""
    given = getattr(request.node, "callspec", None)
    kind = given.params.get("database", "") if given else ""

    def note(attack: str, answers: Counter[Any]) -> None:
        answered = {str(answer): number for answer, number in sorted(answers.items(), key=str)}
        record_property(TRIED, {"attack": attack, "database": kind, "answers": answered})

    return note


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table."""
    if not config.getoption("--long") and config.getoption("capture") != "no":
        return
    totals: dict[tuple[str, str], Counter[str]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, tried in getattr(report, "user_properties", []):
                if name == TRIED and report.when == "call":
                    key = (tried["attack"], tried["database"])
                    totals.setdefault(key, Counter()).update(tried["answers"])
    if not totals:
        return
    terminalreporter.section(TITLE)
    terminalreporter.write_line(f"{'ATTACK':<34}{'DATABASE':<10}{'TRIED':>7}  ANSWERS")
    for (attack, kind), answers in sorted(totals.items()):
        listed = ", ".join(f"{answer} ×{number}" for answer, number in sorted(answers.items()))
        terminalreporter.write_line(f"{attack:<34}{kind:<10}{answers.total():>7}  {listed}")
    total = sum(answers.total() for answers in totals.values())
    terminalreporter.write_line(f"{'all':<44}{total:>7}")
