"""The metrics of PDFs agree with what happened to the jobs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue, apply_changes
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import ManualClock
from kesin.foundation.problems import TooManyRequests
from kesin.foundation.settings import Settings
from kesin.lifecycle.budget import DAY_S, HOUR_S
from kesin.lifecycle.model import Change, Job
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.open import open_store
from kesin.store.sqlite.store import SqliteStore
from kesin.web.failures import FailureReader
from kesin.web.metrics import Metrics
from kesin.workloads.pdf.errors import PdfErrorCode, public_code
from kesin.workloads.pdf.jobs.heartbeat import FRESH_S, Heartbeat
from kesin.workloads.pdf.jobs.store import BUCKETS_S, PdfJobStatus, PdfJobStore, RenderRequest
from kesin.workloads.pdf.jobs.submit import check_backpressure
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from kesin.workloads.pdf.metrics import collect_metrics

CODES = [*PdfErrorCode, "ARTIFACT_WRITE_FAILED", "NEVER_HEARD_OF"]
OFTEN = ("create", "create", "claim", "claim", "succeed", "fail", "fail")
AT_TIMES = ("again", "cancel", "release", "lose", "wait", "expire", "prune")
STEP = st.tuples(st.sampled_from(OFTEN + AT_TIMES), st.integers(0, 3), st.sampled_from(CODES))
EVERY_STEP = [
    *(("create", n, "") for n in range(4)),
    *((op, 0, code) for code in CODES for op in ("create", "wait", "claim", "fail")),
    *(("claim", n, "") for n in range(4)),
    ("release", 1, ""),
    ("succeed", 2, ""),
    ("again", 2, ""),
    ("cancel", 0, ""),
    ("lose", 0, ""),
    ("expire", 0, ""),
    ("create", 3, ""),
    ("prune", 0, ""),
]


class Files:
    """Where PDFs are; some are taken away."""

    def __init__(self) -> None:
        self.gone: set[str] = set()

    def is_lost(self, key: str) -> bool:
        return key in self.gone


class Counted:
    """The jobs, a clock, and counts of what every call returned."""

    def __init__(self, store: Store) -> None:
        self.clock = ManualClock()
        self.queue = Queue("pdf", pdf_lifecycle(), store, clock=self.clock)
        self.files = Files()
        self.jobs = PdfJobStore(self.queue, self.files)  # type: ignore[arg-type]
        commands = Commands({"pdf": self.queue}, Accounts(Directory(store), self.clock))
        self.context = WorkloadContext(Settings.model_construct(pdf_max_queued=5), commands, self.queue)
        self.created = self.retried = self.resumed = self.released = 0
        self.into: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    def numbers(self) -> dict[tuple[str, ...], float]:
        """The page as it is: name and label → value."""
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in collect_metrics(self.context)
            for sample in family.samples
        }

    def do(self, op: str, number: int, code: str) -> None:
        getattr(self, f"_{op}")(number, code)

    def _create(self, number: int, _code: str) -> None:
        if self.jobs.enqueue(RenderRequest("invoice", {"variables": {"n": number}})).new:
            self.created += 1
            self.into["queued"] += 1

    def _again(self, number: int, code: str) -> None:
        """The file of a finished one is lost, and it is asked for once more."""
        job = self._of(number)
        if job is not None and job.state == "succeeded":
            self.files.gone.add(job.result["artifact_key"])
            self.into["expired"] += 1
            self._create(number, code)

    def _claim(self, number: int, _code: str) -> None:
        job = self._of(number)
        self.into["running"] += len(self.queue.claim("w", ids=[job.id])) if job else 0

    def _succeed(self, number: int, _code: str) -> None:
        job = self._of(number)
        made = {"artifact_key": f"pdfs/{job.id}/1.pdf", "seconds": 0.2} if job else {}
        if job is not None and self.jobs.succeed(job, made):
            self.into["succeeded"] += 1

    def _fail(self, number: int, code: str) -> None:
        job = self._of(number)
        if job is not None and self.jobs.fail(job, code, "why"):
            self.failures[str(public_code(code))] += 1
            self._fell(job)

    def _release(self, number: int, _code: str) -> None:
        job = self._of(number)
        if job is None:
            return
        (outcome,) = apply_changes(self.queue, "release", [Change(job.id, job.claim_seq)], actor="w")
        if outcome.result == "moved":
            self.released += 1
            self._fell(job, stopped=True)

    def _cancel(self, number: int, _code: str) -> None:
        job = self._of(number)
        if job is not None and job.state == "queued":
            self.queue.act("cancel", actor="o", ids=[job.id], reason="not wanted")
            self.into["expired"] += 1

    def _lose(self, _number: int, _code: str) -> None:
        """Nobody renews a lease, and the clock takes the jobs back."""
        self.clock.advance(2 * 60)
        running = [job for n in range(4) if (job := self._of(n)) and job.state == "running"]
        self._sweep("recover")
        for job in running:
            self.failures["UNKNOWN"] += 1
            self._fell(job)

    def _wait(self, _number: int, _code: str) -> None:
        self.clock.advance(10)  # the pause before a second try is over

    def _expire(self, _number: int, _code: str) -> None:
        self.clock.advance(25 * HOUR_S)
        self.into["expired"] += self._sweep("expire")

    def _prune(self, number: int, code: str) -> None:
        self._expire(number, code)
        self.clock.advance(8 * DAY_S)
        self._sweep("prune")

    def _fell(self, job: Job, *, stopped: bool = False) -> None:
        """It went through failed; where is it now?"""
        self.into["failed"] += 1
        now = self.queue.job(job.id)
        if now is not None and now.state == "queued":
            self.into["queued"] += 1
            self.resumed += stopped
            self.retried += not stopped

    def _of(self, number: int) -> Job | None:
        """The latest job of this request."""
        page = self.queue.jobs(limit=100).jobs
        return next((j for j in page if j.payload["payload"]["variables"]["n"] == number), None)

    def _sweep(self, stage: str) -> int:
        moves = [move for move in self.queue.lifecycle.scheduled_moves if move.stage == stage]
        return sum(self.queue.sweep(move) for move in moves)


def play(shop: Counted, steps: Sequence[tuple[str, int, str]]) -> None:
    """Make every step: no counter falls, and at the end all agree with what happened."""
    before = shop.numbers()
    for step in steps:
        shop.do(*step)
        now = shop.numbers()
        decreased = [name for name in before if "_total" in name[0] and now[name] < before[name]]
        assert decreased == [], step
        before = now
    jobs = {status.value: before["ptf_admin_pdf_jobs_total", status] for status in PdfJobStatus}
    assert jobs == {status.value: shop.into[status] for status in PdfJobStatus}
    assert before["ptf_admin_pdf_retries_total",] == shop.retried
    assert jobs["queued"] - shop.retried - shop.resumed == shop.created
    failures = {code: before["ptf_admin_pdf_failures_total", code] for code in PdfErrorCode}
    assert failures == {code: shop.failures[code] for code in PdfErrorCode}
    assert jobs["failed"] == sum(failures.values()) + shop.released
    count = before["ptf_admin_pdf_render_duration_seconds_count",]
    assert count == jobs["succeeded"] == shop.into["succeeded"]
    running = shop.queue.stats().states["running"]
    assert jobs["running"] == jobs["succeeded"] + jobs["failed"] + running


@contextmanager
def in_memory() -> Iterator[Counted]:
    store = SqliteStore(":memory:")
    try:
        yield Counted(store)
    finally:
        store.close()


@pytest.fixture
def shop() -> Iterator[Counted]:
    with in_memory() as shop:
        yield shop


@given(st.lists(STEP, min_size=4, max_size=7))
@settings(max_examples=100)
def test_every_move_is_counted_once_whatever_becomes_of_the_jobs(steps):
    """Feature: pdf-render-worker, Property 7: metrics agree with what happened."""
    with in_memory() as shop:
        play(shop, steps)


def test_a_history_with_everything_in_it_counts_on_postgresql(postgres_server):
    """Feature: pdf-render-worker, Property 7: metrics agree with what happened."""
    store = open_store(postgres_server.create_database("pdf_metrics"), migrate=True)
    try:
        shop = Counted(store)
        play(shop, EVERY_STEP)
        assert all(shop.failures[code] for code in PdfErrorCode)
        assert min(shop.created, shop.retried, shop.resumed, *shop.into.values()) > 0
    finally:
        store.close()


def test_before_the_first_job_everything_is_there_and_zero(shop):
    numbers = shop.numbers()
    labels = {name: {key[1] for key in numbers if key[0] == name} for (name, *rest) in numbers if rest}
    assert labels["ptf_admin_pdf_jobs_total"] == set(PdfJobStatus)
    assert labels["ptf_admin_pdf_failures_total"] == set(PdfErrorCode)
    assert len(labels["ptf_admin_pdf_render_duration_seconds_bucket"]) == len(BUCKETS_S) + 1
    assert set(numbers.values()) == {0}


def test_durations_fall_into_their_buckets(shop):
    for number, seconds in enumerate((0.02, 0.05, 0.06, 400)):
        job = shop.jobs.create_job("invoice", {"variables": {"n": number}})
        (held,) = shop.queue.claim("w", ids=[job.job_id])
        shop.jobs.succeed(held, {"artifact_key": "pdfs/a/1.pdf", "seconds": seconds})
    numbers = shop.numbers()
    name = "ptf_admin_pdf_render_duration_seconds"
    counts = [numbers[f"{name}_bucket", le] for le in ("0.025", "0.05", "0.1", "120.0", "+Inf")]
    assert counts == [1, 2, 3, 3, 4]
    assert numbers[f"{name}_sum",] == pytest.approx(400.13)


def test_a_worker_counts_until_it_has_been_silent_for_too_long(shop):
    heart = Heartbeat(shop.queue.store, "w1", now=shop.queue.now)
    heart.beat()
    assert shop.numbers()["ptf_admin_pdf_workers",] == 1
    shop.clock.advance(FRESH_S + 1)
    assert shop.numbers()["ptf_admin_pdf_workers",] == 0


def test_back_pressure_shows_until_the_queue_is_clearly_shorter(shop):
    for number in range(5):
        shop.jobs.create_job("invoice", {"variables": {"n": number}})
    with pytest.raises(TooManyRequests):
        check_backpressure(shop.queue, shop.queue.stats().states["queued"], 5)
    numbers = shop.numbers()
    assert numbers["ptf_admin_pdf_queue_depth",] == 5
    assert numbers["ptf_admin_pdf_backpressure_active",] == 1
    shop.queue.claim("w", limit=1)
    assert shop.numbers()["ptf_admin_pdf_backpressure_active",] == 1
    shop.queue.claim("w", limit=1)
    assert shop.numbers()["ptf_admin_pdf_backpressure_active",] == 0


def test_the_page_is_the_one_prometheus_reads(shop):
    metrics = Metrics(shop.context.commands, shop.clock, FailureReader({}))
    metrics.add(lambda: collect_metrics(shop.context))
    page = metrics.page().decode()
    assert 'ptf_admin_pdf_jobs_total{status="queued"} 0.0' in page
    assert "# TYPE ptf_admin_pdf_render_duration_seconds histogram" in page
    assert 'ptf_admin_pdf_render_duration_seconds_bucket{le="+Inf"} 0.0' in page
