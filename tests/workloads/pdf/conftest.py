"""Services and engines of the workload; tests that share one use their own API keys."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kesin.store.records import Filter
from kesin.workloads.pdf.cleanup import forget_ended_batches
from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine
from tests.workloads.pdf.batching import BatchWorld, opened_batches
from tests.workloads.pdf.engines_shared import SwitchableEngine
from tests.workloads.pdf.front import Front, opened_front
from tests.workloads.pdf.vera import VeraPdf, running_vera
from tests.workloads.pdf.webhook_queues import WebhookQueues, opened_queues
from tests.workloads.receiver import Receiver, receiving


@pytest.fixture(scope="package")
def warm_chromium() -> Iterator[SwitchableEngine]:
    engine = SwitchableEngine()
    yield engine
    engine.close()


@pytest.fixture
def chromium(warm_chromium: SwitchableEngine) -> SwitchableEngine:
    """The browser of all tests, with its default settings."""
    warm_chromium.switch()
    return warm_chromium


@pytest.fixture(scope="package")
def weasyprint() -> Iterator[WeasyPrintEngine]:
    """The WeasyPrint process of all tests."""
    engine = WeasyPrintEngine()
    yield engine
    engine.close()


@pytest.fixture(scope="package")
def vera(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VeraPdf]:
    """The validator of all tests."""
    yield from running_vera(tmp_path_factory.mktemp("vera"))


@pytest.fixture(scope="module")
def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """One for the module: every test has an API key of its own."""
    with opened_front("sqlite", tmp_path_factory.mktemp("front"), request) as front:
        yield front


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"])
def each_front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """The same on each database."""
    with opened_front(request.param, tmp_path_factory.mktemp("each"), request) as front:
        yield front


@pytest.fixture
def own_front(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Front]:
    """A new one, for tests that change global state."""
    with opened_front("sqlite", tmp_path, request) as front:
        yield front


@pytest.fixture
def me(front: Front) -> dict[str, str]:
    return front.owner()


@pytest.fixture(scope="module")
def shared_world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BatchWorld]:
    with opened_batches("sqlite", tmp_path_factory.mktemp("bindery"), request) as bindery:
        yield bindery


@pytest.fixture
def bindery(shared_world: BatchWorld) -> Iterator[BatchWorld]:
    """Batches with a new API key; the next test finds none that waits."""
    bindery = shared_world
    bindery.headers = bindery.key("pdf")
    bindery.engine.printed.clear()
    yield bindery
    for queue in (bindery.queue, bindery.pdf):
        queue.act("cancel", actor="tests", where=Filter(states=("queued",)))
    assert not bindery.queue.jobs(Filter(states=("queued", "running"))).jobs
    forget_ended_batches(bindery.queue, bindery.batches.feeder)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WebhookQueues]:
    """On each database."""
    with opened_queues(request.param, tmp_path, request) as office:
        yield office


@pytest.fixture
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WebhookQueues]:
    """The same on SQLite alone, for what does not depend on the database."""
    with opened_queues("sqlite", tmp_path, request) as office:
        yield office


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server
