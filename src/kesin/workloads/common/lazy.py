"""Importing on first use, so that a command starts at once and missing libraries do no harm."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def later(package: str, place: str) -> Callable[..., Any]:
    """Return a function that calls ``module:name`` of a package; imported at the first call."""

    def call(*args: Any) -> Any:
        return attribute(package, place)()(*args)

    return call


def attribute(package: str, place: str) -> Callable[[], Any]:
    """Return a function that returns ``module:name`` of a package; imported at the first call."""
    module, _, name = place.partition(":")
    return lambda: getattr(import_module(f"{package}.{module}"), name)
