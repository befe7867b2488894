"""A row as job, events and API row, and its invariants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kesin.engine.replay import differences
from kesin.lifecycle.model import Job
from kesin.lifecycle.vocabulary import OWNED
from kesin.store.declarations import COLUMN_BITS
from kesin.store.records import Event
from kesin.workloads.oci.conversions.conversion import Conversion, RowDefaults, Unsendable, order_id_of

SCRIPT_LEASE_US = 900 * 1_000_000
OUR_LEASE_US = 120 * 1_000_000


class Seen(NamedTuple):
    """A row as job, events and API row."""

    job: Job
    events: list[Event]
    row: dict[str, Any]

    @property
    def state(self) -> str:
        return self.job.state

    @property
    def corrections(self) -> int:
        return sum(event.move == "correct" for event in self.events)

    @property
    def claims(self) -> int:
        return sum(event.claim == 1 for event in self.events)

    @property
    def is_sendable(self) -> bool:
        try:
            Conversion.from_payload(self.job.payload, RowDefaults(self.job.tenant, None, ""))
        except Unsendable:
            return False
        return True

    @property
    def click(self) -> tuple[object, ...]:
        return self.job.tenant, self.job.stamp_1, self.job.payload.get("gclid")

    def is_due(self, now: int) -> bool:
        """Whether an export may return it."""
        due = self.job.run_at is not None and self.job.run_at <= now
        return self.state in ("QUEUED", "RETRY") and due and self.job.attempts_left > 0


def check_row(seen: Seen) -> None:
    """Check the invariants of a row."""
    job, events, row = seen
    assert row["status"] == job.state
    assert [str(one) for one in differences(job, events)] == []
    assert row["attempt_count"] == seen.claims
    assert (row["claimed_at"] is not None) == (job.phase == OWNED) == (job.state == "PROCESSING")
    assert (row["uploaded_at"] is not None) == (job.state == "COMPLETED")
    assert (row["failed_at"] is not None) == (job.state == "FAILED")
    assert row["next_retry_at"] is None or job.state in ("RETRY", "FAILED")
    if isinstance(job.payload.get("externalId"), str):
        key = (job.payload["externalId"], job.payload.get("revision", 1))
        assert row["orderId"] == order_id_of(job.tenant, *key)
    if job.state == "FAILED":
        assert row["provider_error_code"]
        assert row["provider_error_category"]
        assert row["last_error"]
    _check_events(events)


def _check_events(events: Iterable[Event]) -> None:
    claim: Event | None = None
    category: str | None = None
    for event in events:
        assert event.from_state != "COMPLETED", "it left COMPLETED"
        assert 0 <= event.attempt - event.attempt_base <= event.max_attempts
        if event.move in ("recover", "attempt_cap") and event.from_state == "PROCESSING":
            assert claim is not None
            by_script = (claim.worker or "").startswith("key:")
            lease_us = SCRIPT_LEASE_US if by_script else OUR_LEASE_US
            assert event.at >= claim.at + lease_us, "a claim was taken away early"
        if event.move == "revive":
            assert category in ("TRANSIENT", "RATE_LIMIT"), "the clock took up what people must mend"
        elif event.from_state == "FAILED":
            assert event.actor != "clock"
            assert event.move != "correct" or category == "VALIDATION"
        if event.claim == 1:
            assert claim is None, "two hold it at once"
            assert event.from_state in ("QUEUED", "RETRY")
            claim = event
        elif event.claim == 0:
            claim = None
        if event.mask & COLUMN_BITS["error"]:
            category = event.error_category
