"""For all workloads; the courier is a package of its own, its folder is put on the path."""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from tests.quick_hashes import quick_hashes

COURIER = Path(__file__).parents[2] / "examples" / "courier"
sys.path.append(str(COURIER))

with warnings.catch_warnings():  # it asks for httpx2 and works with httpx
    warnings.simplefilter("ignore")
    import starlette.testclient  # noqa: F401


@pytest.fixture(scope="package", autouse=True)
def _quick_hashes() -> Iterator[None]:
    with quick_hashes():
        yield


@pytest.fixture
def said() -> Iterator[list[Any]]:
    """What is logged meanwhile."""
    with capture_logs() as lines:
        yield lines
    structlog.reset_defaults()
