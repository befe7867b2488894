"""Proofs that were made before: a lifecycle known by its fingerprint is not proved again.

The fingerprint covers every word of the declaration and the source of the prover, so whoever
changes either is back to proving. Only proofs that hold are remembered; they come with the package,
and a test makes each of them anew. `scripts/remember-proofs.py` writes the file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.proof.rules import Proof, prove

FILE: Final = "proved.json"
_PROVER: Final = (
    *("budget.py", "consistency.py", "declare.py", "errors.py", "vocabulary.py"),
    *("proof/graph.py", "proof/rules.py", "proof/walk.py"),
)


@lru_cache(maxsize=64)
def proof_of(lifecycle: Lifecycle) -> Proof:
    """The proof of a lifecycle: remembered, or made once in this process."""
    return remembered(lifecycle) or prove(lifecycle)


def remembered(lifecycle: Lifecycle) -> Proof | None:
    """The proof of exactly these rules by exactly this prover, if there is one."""
    known = _known().get(fingerprint(lifecycle))
    if known is None:
        return None
    return Proof(lifecycle.name, (), known["configurations"], known["bound"])


def fingerprint(lifecycle: Lifecycle) -> str:
    """A hash over the declaration and the prover."""
    told = json.dumps(_spelled(lifecycle), separators=(",", ":"))
    return hashlib.sha256(f"{_prover()}{told}".encode()).hexdigest()


def written(lifecycles: list[Lifecycle]) -> str:
    """What the file holds for these."""
    proofs = {}
    for one in lifecycles:
        proof = prove(one)
        if proof:
            proofs[fingerprint(one)] = {
                "lifecycle": one.name,
                "configurations": proof.configurations,
                "bound": proof.bound,
            }
    return json.dumps(proofs, indent=2, sort_keys=True) + "\n"


def _spelled(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        parts = {one.name: _spelled(getattr(value, one.name)) for one in fields(value)}
        return [type(value).__name__, parts]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_spelled(one) for one in value]
    if isinstance(value, frozenset | set):
        return sorted(json.dumps(_spelled(one)) for one in value)
    if isinstance(value, dict):
        return sorted([json.dumps(_spelled(key)), _spelled(one)] for key, one in value.items())
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a declaration holds no {type(value).__name__}")


@cache
def _prover() -> str:
    folder = files("kesin.lifecycle")
    sources = "".join((folder / name).read_text("utf-8") for name in _PROVER)
    return hashlib.sha256(sources.encode()).hexdigest()


@cache
def _known() -> dict[str, dict[str, Any]]:
    file = files("kesin.engine") / FILE
    known: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return known
