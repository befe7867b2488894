"""What makes a PDF of HTML: `chromium.py` and `weasy.py` are two of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

from kesin.workloads.pdf.paper import Paper


@dataclass(frozen=True, slots=True)
class Rendered:
    """A PDF, and what was noticed while it was made."""

    pdf: bytes
    pages: int
    engine: str
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def sha256(self) -> str:
        """Of the bytes: the same job on the same machine gives the same."""
        return hashlib.sha256(self.pdf).hexdigest()


class Engine(Protocol):
    """Renders one document at a time; safe to call from one thread."""

    name: str

    def render(self, html: str, paper: Paper, *, timeout_s: float) -> Rendered:
        """A PDF of this HTML; raises RenderFailed and nothing else."""
        ...

    def close(self) -> None:
        """Let go of everything, processes included."""
        ...
