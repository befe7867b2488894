"""Services and engines of the workload; tests that share one use their own API keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kesin.store.records import Filter
from kesin.workloads.pdf import services
from kesin.workloads.pdf.channel import ChildLimits, Reply, failure_head, raise_failure, run_in_child
from kesin.workloads.pdf.cleanup import forget_ended_batches
from kesin.workloads.pdf.engines import pick_engine
from kesin.workloads.pdf.engines.base import Engine
from kesin.workloads.pdf.engines.weasyprint import WeasyPrintEngine
from kesin.workloads.pdf.errors import RenderFailed
from kesin.workloads.pdf.steps import finishing
from kesin.workloads.pdf.uploads import checking
from tests.workloads.pdf.batching import BatchWorld, opened_batches
from tests.workloads.pdf.engines_shared import SwitchableEngine
from tests.workloads.pdf.front import Front, opened_front
from tests.workloads.pdf.vera import VeraPdf, running_vera
from tests.workloads.pdf.webhook_queues import WebhookQueues, opened_queues
from tests.workloads.receiver import Receiver, receiving

USUAL = {finishing.LIMITS, finishing.BATCH_LIMITS, checking.LIMITS}


def perform(module: str, head: dict[str, Any], body: bytes, limits: ChildLimits) -> Reply:
    """Perform the task of a child process here; in a child if a test gives it limits of its own."""
    if limits not in USUAL:
        return run_in_child(module, head, body, limits)
    head = json.loads(json.dumps(head))
    try:
        if module == checking._MODULE:
            return checking.clean_pdf(head, body)
        return finishing._merge_files(head) if "path" in head else finishing.finish(head, body)
    except RenderFailed as problem:
        raise_failure(json.loads(json.dumps(failure_head(problem))))


@pytest.fixture(autouse=True, scope="package")
def _few_children() -> Iterator[None]:
    """To start a child for each PDF that is merged or cleaned takes longer than the rest of a test."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (finishing, checking):
            patch.setattr(module, "run_in_child", perform)
        yield


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge and clean in child processes, as services do."""
    for module in (finishing, checking):
        monkeypatch.setattr(module, "run_in_child", run_in_child)


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


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Commands and workers print with the engines of all tests: their start is tested by the doctor."""

    class Unclosed:
        def __init__(self, engine: Engine) -> None:
            self.render = engine.render

        def close(self) -> None:
            """Leave it to the other tests."""

    def pick(*wanted: Any) -> Unclosed:
        return Unclosed(request.getfixturevalue(pick_engine(*wanted).name))

    monkeypatch.setattr(services, "pick_engine", pick)


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
