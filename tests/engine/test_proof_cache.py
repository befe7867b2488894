from dataclasses import replace
from importlib.resources import files

import pytest

from kesin.engine import proof_cache
from kesin.lifecycle.proof.rules import prove
from kesin.lifecycle.task import task_lifecycle
from kesin.workloads import lifecycles


def test_every_remembered_proof_is_the_one_made_now():
    content = (files("kesin.engine") / proof_cache.CACHE_FILE).read_text("utf-8")
    assert content == proof_cache.format_proofs([make() for make in lifecycles().values()]), (
        "the prover or a lifecycle changed: run python scripts/remember-proofs.py"
    )


@pytest.mark.parametrize("name", lifecycles())
def test_a_known_lifecycle_is_not_proved_again(name, monkeypatch):
    lifecycle = lifecycles()[name]()
    made = prove(lifecycle)
    monkeypatch.setattr(proof_cache, "prove", lambda _: pytest.fail("it was proved again"))
    assert proof_cache.cached_proof(lifecycle) == made


def test_a_single_changed_word_is_another_lifecycle():
    plain = task_lifecycle()
    changed = replace(plain, max_attempts=plain.max_attempts + 1)
    assert proof_cache.cached_proof(plain) is not None
    assert proof_cache.cached_proof(changed) is None


def test_another_prover_knows_no_proof_of_this_one(monkeypatch):
    monkeypatch.setattr(proof_cache, "_prover_hash", lambda: "another")
    assert proof_cache.cached_proof(task_lifecycle()) is None


def test_what_is_not_proved_is_not_written_down():
    endless = replace(
        task_lifecycle(),
        moves=tuple(move for move in task_lifecycle().moves if move.stage != "recover"),
    )
    assert not prove(endless)
    assert proof_cache.format_proofs([endless]) == "{}\n"
