"""Kesin with one job a claim: a kill costs what was in hand, and every job a write."""

from __future__ import annotations

from functools import partial

from bench.chaos.sides.kesin_side import PACKAGE, fates, left, prepare, send
from bench.chaos.sides.kesin_side import work as _work

__all__ = ["PACKAGE", "fates", "left", "prepare", "send", "work"]

work = partial(_work, batch=1)
