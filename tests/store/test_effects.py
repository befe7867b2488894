"""Effects over several moves: payloads, waits, budgets and flags.

``test_words`` compares every single effect with the model.
"""

from __future__ import annotations

import pytest

from kesin.lifecycle.model import Change
from kesin.store.errors import StoreError
from tests.store.scene import MINUTE, PRODUCER, error

TRANSIENT = error("UPLOAD_EXCEPTION", "TRANSIENT")


# Payloads


def test_a_correction_replaces_the_payload_and_its_event_holds_both(oci):
    job = oci.move("ack_failed", oci.claim_new_job(payload='{"v":1}'), **error("BAD", "VALIDATION"))
    with pytest.raises(StoreError, match="payload"):
        oci.apply_one("correct", job.id, **PRODUCER)
    assert oci.job(job) == job
    corrected = oci.move("correct", job.id, payload='{"v":2}', **PRODUCER)
    assert (corrected.payload, corrected.payload_seq) == ({"v": 2}, corrected.seq)
    (claimed,) = oci.claim()
    assert claimed.payload == {"v": 2}
    oci.move("ack", claimed)
    payloads = [(event.move, event.payload, event.old_payload) for event in oci.events(job)]
    assert [row for row in payloads if row[1:] != (None, None)] == [("correct", '{"v":2}', '{"v":1}')]


# Times, as the model has them


def test_every_retry_waits_as_long_as_the_model_says(oci):
    job = oci.create_job(max_attempts=12)
    waits = []
    for _ in range(12):
        (held,) = oci.claim()
        expected = oci.modelled(oci.declared("retry_later"), held, Change(held.id, **TRANSIENT))
        assert oci.move("retry_later", held, **TRANSIENT) == expected
        waits.append((expected.run_at - oci.now) // MINUTE)
        oci.clock.time_us = expected.run_at
    assert waits[:3] == [5, 10, 20]
    assert waits[-1] == 24 * 60
    assert oci.job(job).attempt_count == 12
