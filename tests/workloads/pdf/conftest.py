"""Shop fronts, binderies, post offices; tests that share one have each an owner of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kesin.store.records import Filter
from kesin.workloads.pdf.cleanup import forget_ended_batches
from tests.workloads.pdf.batching import Bindery, opened_bindery
from tests.workloads.pdf.front import Front, opened_front
from tests.workloads.pdf.post_office import PostOffice, opened_office
from tests.workloads.receiver import Receiver, receiving


@pytest.fixture(scope="module")
def front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    """One for the file: every test has an owner of its own."""
    with opened_front("sqlite", tmp_path_factory.mktemp("front"), request) as front:
        yield front


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"])
def each_front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Front]:
    """The same on each database, for what a database could spoil."""
    with opened_front(request.param, tmp_path_factory.mktemp("each"), request) as front:
        yield front


@pytest.fixture
def own_front(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Front]:
    """A fresh one, for tests that change what all see."""
    with opened_front("sqlite", tmp_path, request) as front:
        yield front


@pytest.fixture
def me(front: Front) -> dict[str, str]:
    return front.owner()


@pytest.fixture(scope="module")
def bindery_of_all(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bindery]:
    with opened_bindery("sqlite", tmp_path_factory.mktemp("bindery"), request) as bindery:
        yield bindery


@pytest.fixture
def bindery(bindery_of_all: Bindery) -> Iterator[Bindery]:
    """Batches of somebody new; whoever comes next finds nothing to do."""
    bindery = bindery_of_all
    bindery.headers = bindery.key("pdf")
    bindery.engine.printed.clear()
    yield bindery
    for queue in (bindery.queue, bindery.pdf):
        queue.act("cancel", actor="tests", where=Filter(states=("queued",)))
    assert not bindery.queue.jobs(Filter(states=("queued", "running"))).jobs
    forget_ended_batches(bindery.queue, bindery.batches.feeder)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PostOffice]:
    """On each database."""
    with opened_office(request.param, tmp_path, request) as office:
        yield office


@pytest.fixture
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PostOffice]:
    """A post office on SQLite alone, for what no database could spoil."""
    with opened_office("sqlite", tmp_path, request) as office:
        yield office


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server
