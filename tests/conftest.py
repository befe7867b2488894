import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import PostgresServer

# Shared machines are slow at times; that says nothing about the code.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("ci", PATIENT, derandomize=True, max_examples=50)
settings.register_profile("long", PATIENT, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One private server a test process, started by the first test that wants it."""
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """The URL of one database that all tests of this process share."""
    return postgres_server.create_database("kesin")
