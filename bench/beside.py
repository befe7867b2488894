"""What every measurement needs beside its figures."""

from __future__ import annotations

import os
import sys


def say(text: str) -> None:
    """Tell whoever waits how far it is."""
    print(text, file=sys.stderr, flush=True)


def own_environment() -> dict[str, str]:
    """The environment without settings of Kesin: a process gets those it is told."""
    return {name: one for name, one in os.environ.items() if not name.startswith("KESIN_")}
