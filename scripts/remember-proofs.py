"""Prove the lifecycles that come with Kesin and write down that they are proved.

Run it after a change of the prover or of a lifecycle: python scripts/remember-proofs.py
"""

from importlib.resources import files
from pathlib import Path

from reference.proofs import format_proofs

from kesin.engine.proof_cache import CACHE_FILE
from kesin.workloads import lifecycles

Path(str(files("kesin.engine"))).joinpath(CACHE_FILE).write_text(
    format_proofs([make() for make in lifecycles().values()]), "utf-8"
)
