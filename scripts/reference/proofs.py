"""The cache of proofs that ships with the package: see `kesin.engine.proof_cache`."""

import json
from collections.abc import Callable

from kesin.engine.proof_cache import fingerprint
from kesin.lifecycle.declare import Lifecycle
from kesin.lifecycle.proof.rules import Proof, prove


def format_proofs(lifecycles: list[Lifecycle], made: Callable[[Lifecycle], Proof] = prove) -> str:
    """The content of the cache file for these lifecycles; only proofs that hold are in it."""
    proofs = {
        fingerprint(lifecycle): {
            "lifecycle": lifecycle.name,
            "configurations": proof.configurations,
            "bound": proof.bound,
        }
        for lifecycle in lifecycles
        if (proof := made(lifecycle))
    }
    return json.dumps(proofs, indent=2, sort_keys=True) + "\n"
