"""Prove the lifecycles that come with Kesin and write down that they are proved.

Run it after a change of the prover or of a lifecycle: python scripts/remember-proofs.py
"""

from importlib.resources import files
from pathlib import Path

from kesin.engine.proof_cache import FILE, written
from kesin.workloads import LIFECYCLES

Path(str(files("kesin.engine"))).joinpath(FILE).write_text(
    written([make() for make in LIFECYCLES.values()]), "utf-8"
)
