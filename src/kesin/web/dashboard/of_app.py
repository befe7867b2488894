"""What pages keep in the app they belong to: made when it is first asked for, once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from fastapi import FastAPI

_T = TypeVar("_T")
_making = threading.Lock()


def once(app: FastAPI, name: str, make: Callable[[], _T]) -> _T:
    """What is kept under this name."""
    with _making:
        if not hasattr(app.state, name):
            setattr(app.state, name, make())
        found: _T = getattr(app.state, name)
        return found
