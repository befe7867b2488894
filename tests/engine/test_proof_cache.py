from dataclasses import replace
from functools import cache
from importlib.resources import files

import pytest

from kesin.engine import proof_cache
from kesin.lifecycle.proof.rules import prove
from kesin.lifecycle.task import task_lifecycle
from kesin.workloads import lifecycles
from scripts.reference.proofs import format_proofs


def test_every_cached_proof_is_current_and_is_not_made_again(monkeypatch):
    made = cache(prove)
    known = [make() for make in lifecycles().values()]
    content = (files("kesin.engine") / proof_cache.CACHE_FILE).read_text("utf-8")
    assert content == format_proofs(known, made), (
        "the prover or a lifecycle changed: run python scripts/remember-proofs.py"
    )
    monkeypatch.setattr(proof_cache, "prove", lambda _: pytest.fail("it was proved again"))
    for lifecycle in known:
        assert proof_cache.cached_proof(lifecycle) == made(lifecycle)


def test_a_changed_lifecycle_has_no_cached_proof():
    plain = task_lifecycle()
    changed = replace(plain, max_attempts=plain.max_attempts + 1)
    assert proof_cache.cached_proof(plain) is not None
    assert proof_cache.cached_proof(changed) is None


def test_a_changed_prover_uses_no_cached_proof(monkeypatch):
    monkeypatch.setattr(proof_cache, "_prover_hash", lambda: "another")
    assert proof_cache.cached_proof(task_lifecycle()) is None


def test_a_failed_proof_is_not_cached():
    endless = replace(
        task_lifecycle(),
        moves=tuple(move for move in task_lifecycle().moves if move.stage != "recover"),
    )
    assert not prove(endless)
    assert format_proofs([endless]) == "{}\n"
