"""A queue beside a table of the application's own, in one database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kesin import Queue, task_lifecycle
from tests.store.conftest import empty, opened


class Place:
    """A queue, and where the application keeps its own table beside it."""

    def __init__(self, store: Any, url: str) -> None:
        self.queue = Queue("mail", task_lifecycle(), store)
        self.url = url
        self.schema: str = getattr(store, "schema", "")

    def orders(self) -> int:
        with self.queue.store.transaction() as connection:
            return int(connection.execute("SELECT count(*) FROM app_order").fetchone()[0])

    def jobs(self) -> int:
        return self.queue.stats().total


def place_of(kind: str, request: pytest.FixtureRequest, stack: ExitStack) -> Place:
    store: Any
    if kind == "postgres":
        store, url = (request.getfixturevalue("postgres_store"), request.getfixturevalue("postgres_url"))
        stack.callback(empty, store)
    else:
        store = stack.enter_context(opened(kind, request))
        url = store.path
    place = Place(store, url)
    with store.transaction() as connection:
        connection.execute("DROP TABLE IF EXISTS app_order")
        connection.execute("CREATE TABLE app_order (n integer)")
    return place


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as stack:
        yield place_of("postgres", request, stack)


@pytest.fixture
def file_place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with ExitStack() as stack:
        yield place_of("sqlite-file", request, stack)
