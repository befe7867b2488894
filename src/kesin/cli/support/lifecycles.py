"""Lifecycles by name: those of the workloads, and any module:attribute."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kesin.cli.support.errors import Failure, Usage, did_you_mean
from kesin.lifecycle.declare import Lifecycle

_OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def registry() -> dict[str, Callable[[], Lifecycle]]:
    """The lifecycles that come with Kesin, and with workloads of other packages."""
    from kesin.workloads import LIFECYCLES, workloads

    return LIFECYCLES | {one.name: one.lifecycle for one in workloads().values()}


def load_object(name: str) -> Any:
    """What ``module:attribute`` names; the current folder is searched first."""
    if not _OBJECT.fullmatch(name):
        raise Usage(f"{name!r} is no name of the form module:attribute, like mails.tasks:send")
    module_name, _, path = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        if problem.name and (module_name + ".").startswith(problem.name + "."):
            raise Usage(
                f"there is no module {problem.name!r} in {here} or among the installed packages"
            ) from None
        raise Failure(f"importing {module_name} failed: {problem}") from problem
    except (Exception, SystemExit) as problem:
        why = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise Failure(f"importing {module_name} failed: {why}") from problem
    for part in path.split("."):
        if not hasattr(found, part):
            where = getattr(found, "__name__", module_name)
            near = did_you_mean(part, [one for one in dir(found) if not one.startswith("_")])
            raise Usage(f"{where} has no {part!r}{near}")
        found = getattr(found, part)
    return found


def load_handler(name: str) -> Callable[..., Any]:
    """A function that works on jobs."""
    found = load_object(name)
    if not callable(found):
        raise Usage(f"{name} is no function but a {type(found).__name__}")
    handler: Callable[..., Any] = found
    return handler


def find_lifecycle(name: str) -> Lifecycle:
    """The registered lifecycle of that name, or the one ``module:attribute`` is or returns."""
    known = registry()
    if name in known:
        return known[name]()
    if ":" not in name:
        raise Usage(
            f"there is no lifecycle {name!r}{did_you_mean(name, known) or ':'} "
            f"there are {', '.join(known)}, and your own as module:attribute"
        )
    found = load_object(name)
    if callable(found) and not isinstance(found, Lifecycle):
        _require_no_arguments(name, found)
        found = found()
    if not isinstance(found, Lifecycle):
        raise Usage(f"{name} is no lifecycle and returns none, but a {type(found).__name__}")
    return found


def _require_no_arguments(name: str, function: Callable[..., Any]) -> None:
    """Asked beforehand: a TypeError that it throws itself is its own and tells its own story."""
    try:
        taken = inspect.signature(function, follow_wrapped=False)  # as it is called
    except (TypeError, ValueError):  # it does not say what it takes
        return
    try:
        taken.bind()
    except TypeError as problem:
        raise Usage(f"{name} cannot be called without arguments: {problem}") from problem
