"""Workshop floors for the tests of the doors, benches for those of the runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.conftest import _plain_logs, _quick_hashes  # noqa: F401  # fixtures
from tests.workloads.optiplan.floor import Floor, opened_floor
from tests.workloads.optiplan.workbench import InstantProgram, Workbench, opened_bench


@pytest.fixture(scope="module")
def floor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Floor]:
    """One for the file; every test brings orders of its own."""
    with opened_floor("sqlite", tmp_path_factory.mktemp("floor"), request) as floor:
        yield floor


@pytest.fixture
def own_floor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Floor]:
    """A fresh one, for tests that change what all see."""
    with opened_floor("sqlite", tmp_path, request) as floor:
        yield floor


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def each_floor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Floor]:
    """The same on each database, for what a database could spoil."""
    with opened_floor(request.param, tmp_path_factory.mktemp("each"), request) as floor:
        yield floor


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workbench]:
    """A fresh one; files that need another kind have their own."""
    with opened_bench("sqlite", tmp_path, request) as bench:
        yield bench


@pytest.fixture
def instant(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> InstantProgram:
    """Programs that end as soon as they begin."""
    return InstantProgram(bench, monkeypatch)
