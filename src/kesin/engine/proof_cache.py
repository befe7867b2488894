"""Cached proofs, by declaration and prover's source; `scripts/remember-proofs.py` writes them."""

import hashlib
import json
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

from kesin.lifecycle.codec import lifecycle_json
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.proof.rules import Proof, prove

CACHE_FILE: Final = "proved.json"
_PROVER_SOURCES: Final = (
    *("budget.py", "consistency.py", "declare.py", "errors.py", "vocabulary.py"),
    *("proof/graph.py", "proof/rules.py", "proof/walk.py"),
)


@lru_cache(maxsize=64)
def proof_of(lifecycle: Lifecycle) -> Proof:
    """The proof of a lifecycle: from the cache, or made once in this process."""
    return cached_proof(lifecycle) or prove(lifecycle)


def cached_proof(lifecycle: Lifecycle) -> Proof | None:
    """The cached proof of exactly this declaration by exactly this prover, if there is one."""
    entry = _cached_proofs().get(fingerprint(lifecycle))
    if entry is None:
        return None
    return Proof(lifecycle.name, (), entry["configurations"], entry["bound"])


def fingerprint(lifecycle: Lifecycle) -> str:
    """A hash over the declaration and the prover."""
    return hashlib.sha256(f"{_prover_hash()}{lifecycle_json(lifecycle)}".encode()).hexdigest()


@cache
def _prover_hash() -> str:
    folder = files("kesin.lifecycle")
    sources = "".join((folder / name).read_text("utf-8") for name in _PROVER_SOURCES)
    return hashlib.sha256(sources.encode()).hexdigest()


@cache
def _cached_proofs() -> dict[str, dict[str, Any]]:
    file = files("kesin.engine") / CACHE_FILE
    proofs: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return proofs
