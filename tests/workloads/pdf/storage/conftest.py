from collections.abc import Iterator

import pytest

from tests.workloads.pdf.s3 import S3Server


@pytest.fixture(scope="package")
def s3_server() -> Iterator[S3Server]:
    """One server; each test has a prefix of its own."""
    with S3Server() as server:
        yield server
