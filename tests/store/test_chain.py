"""Chains: two moves in one transaction, two events, two counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.model import Change
from kesin.lifecycle.vocabulary import budget_left, budget_spent, holds_claim
from kesin.store.records import Outcome
from kesin.workloads.pdf.lifecycle import pdf_lifecycle
from tests.store.scene import error

BROWSER = error("BROWSER_LAUNCH_FAILED")


def test_a_chain_is_two_moves_of_the_model_two_events_and_two_counts(pdf):
    held = pdf.claim_new_job(key="k")
    change = Change(held.id, held.claim_seq, **BROWSER)
    failed = pdf.modelled(pdf.declared("fail"), held, change)
    assert pdf.apply_one("fail", change) == Outcome("moved", held.id, "queued", 4)
    assert pdf.job(held) == pdf.modelled(pdf.declared("requeue"), failed)
    moves = [("fail", "running", "failed"), ("requeue", "failed", "queued")]
    events = [(event.move, event.from_state, event.to_state) for event in pdf.events(held)]
    assert events[2:] == moves
    counts = {count[1:4]: count.n for count in pdf.store.move_counts("pdf")}
    assert [counts[move] for move in moves] == [1, 1]
    duplicate = Outcome("duplicate", held.id, "queued", 4)
    assert pdf.enqueue(pdf.new(key="k")) == [duplicate], "the job holds its key again"


def test_each_job_of_a_batch_is_chained_by_its_own_row_until_its_retries_are_used_up(pdf):
    first, second, third, released = pdf.claim_new_jobs(4)
    pdf.apply(
        "fail",
        [
            Change(first.id, first.claim_seq, **BROWSER),
            Change(second.id, second.claim_seq, **error("UNKNOWN", "PERMANENT")),
            Change(third.id, 1, **BROWSER),
        ],
    )
    assert [pdf.state(job) for job in (first, second, third)] == ["queued", "failed", "running"]
    back = pdf.move("release", released)  # the row decides which second link is made
    assert (back.state, back.move, back.retry_count, back.attempts_left) == ("queued", "resume", 0, 3)
    for _ in range(2):
        pdf.clock.advance(5)
        pdf.move("fail", pdf.claim(ids=[first.id])[0], **BROWSER)
    assert (pdf.state(first), pdf.job(first).retry_count) == ("failed", 2)


def test_a_chain_is_made_whole_or_not_at_all(pdf, monkeypatch):
    job = pdf.claim_new_job()
    before = pdf.snapshot()
    monkeypatch.setattr(Lifecycle, "chained_moves", property(lambda self: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        pdf.apply_one("fail", job, **BROWSER)
    assert pdf.snapshot() == before


def test_of_alternatives_with_one_name_only_the_chained_one_is_followed(open_queue):
    """A failure with budget left is chained to a requeue; the last one is not."""
    lifecycle = pdf_lifecycle()
    fail = next(move for move in lifecycle.moves if move.name == "fail")
    alternatives = (
        replace(fail, when=(holds_claim, budget_left)),
        replace(fail, when=(holds_claim, budget_spent), then=""),
    )
    moves = tuple(move for old in lifecycle.moves for move in (alternatives if old is fail else (old,)))
    pdf = open_queue(replace(lifecycle, moves=moves))
    assert pdf.move("fail", pdf.claim_new_job(max_attempts=2), **BROWSER).state == "queued"
    assert pdf.move("fail", pdf.claim()[0], **BROWSER).state == "failed"
