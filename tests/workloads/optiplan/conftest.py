"""Fixtures: floors for the tests of the API, benches for those of the runner."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.conftest import _plain_logs, _quick_hashes  # noqa: F401  # fixtures
from tests.workloads.optiplan.floor import Floor, open_floor
from tests.workloads.optiplan.workbench import InstantProgram, Workbench, open_bench


@pytest.fixture(scope="module")
def floor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    """A floor for the whole file; every test creates its own orders."""
    with open_floor("sqlite", tmp_path_factory.mktemp("floor"), request) as floor:
        yield floor


@pytest.fixture
def own_floor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Floor]:
    """A fresh floor, for tests that change shared state."""
    with open_floor("sqlite", tmp_path, request) as floor:
        yield floor


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def each_floor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Floor]:
    """A floor on each database, for what depends on the database."""
    with open_floor(request.param, tmp_path_factory.mktemp("each"), request) as floor:
        yield floor


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workbench]:
    """A fresh bench; files that need another kind define their own."""
    with open_bench("sqlite", tmp_path, request) as bench:
        yield bench


@pytest.fixture
def instant(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> InstantProgram:
    """Programs that end as soon as they begin."""
    return InstantProgram(bench, monkeypatch)
