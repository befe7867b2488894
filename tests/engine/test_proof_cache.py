import json
from dataclasses import replace
from importlib.resources import files

import pytest

from kesin.engine import proof_cache
from kesin.lifecycle.proof.rules import prove
from kesin.lifecycle.task import task_lifecycle
from kesin.workloads import lifecycles
from scripts.reference.proofs import format_proofs

CHANGED = "the prover or a lifecycle changed: run python scripts/remember-proofs.py"
CONTENT = (files("kesin.engine") / proof_cache.CACHE_FILE).read_text("utf-8")


def test_every_lifecycle_has_a_current_proof_and_nothing_else_is_cached():
    """Only proofs that hold are written, with a hash of the declaration and of the prover."""
    known = {proof_cache.fingerprint(make()) for make in lifecycles().values()}
    assert json.loads(CONTENT).keys() == known, CHANGED


@pytest.mark.long
def test_every_cached_proof_is_what_the_prover_finds():
    assert format_proofs([make() for make in lifecycles().values()]) == CONTENT, CHANGED


@pytest.mark.parametrize("name", ["task", "pdf"])
def test_a_cached_proof_is_that_of_the_prover_and_is_not_made_again(name, monkeypatch):
    lifecycle = lifecycles()[name]()
    made = prove(lifecycle)
    monkeypatch.setattr(proof_cache, "prove", lambda _: pytest.fail("it was proved again"))
    assert proof_cache.proof_of.__wrapped__(lifecycle) == made


def test_a_changed_lifecycle_or_prover_has_no_cached_proof_and_a_failed_one_is_not_cached(monkeypatch):
    plain = task_lifecycle()
    changed = replace(plain, max_attempts=plain.max_attempts + 1)
    assert proof_cache.cached_proof(plain) is not None
    assert proof_cache.cached_proof(changed) is None
    endless = replace(plain, moves=tuple(move for move in plain.moves if move.stage != "recover"))
    assert not prove(endless)
    assert format_proofs([endless]) == "{}\n"
    monkeypatch.setattr(proof_cache, "_prover_hash", lambda: "another")
    assert proof_cache.cached_proof(plain) is None
