"""What a workload names without importing it: a command that needs none of it starts at once."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_value(package: str, place: str) -> Callable[[], Any]:
    """Return a function for what ``module:name`` of a package holds, imported at the first call."""
    module, _, name = place.partition(":")
    return lambda: getattr(import_module(f"{package}.{module}"), name)


def lazy_call(package: str, place: str) -> Callable[..., Any]:
    """Return a function that calls ``module:name`` of a package, imported at the first call."""
    load = lazy_value(package, place)

    def call(*args: Any) -> Any:
        return load()(*args)

    return call
