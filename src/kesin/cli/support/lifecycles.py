"""Lifecycles by name: those of the workloads, and any module:attribute."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from kesin.cli.support.errors import CommandError, UsageError, did_you_mean
from kesin.engine.results import require_plain_function
from kesin.lifecycle.codec import lifecycle_from_json
from kesin.lifecycle.declare import Lifecycle
from kesin.store.contract import Store
from kesin.workloads import lifecycles

_OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def load_object(name: str) -> Any:
    """Load what ``module:attribute`` names; the current folder is searched first."""
    if not _OBJECT.fullmatch(name):
        raise UsageError(f"{name!r} is not of the form module:attribute, like mails.tasks:send")
    module_name, _, path = name.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        loaded: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        if problem.name and (module_name + ".").startswith(problem.name + "."):
            raise UsageError(
                f"there is no module {problem.name!r} in {folder} or among the installed packages"
            ) from None
        raise CommandError(f"importing {module_name} failed: {problem}") from problem
    except (Exception, SystemExit) as problem:
        why = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise CommandError(f"importing {module_name} failed: {why}") from problem
    for part in path.split("."):
        if not hasattr(loaded, part):
            where = getattr(loaded, "__name__", module_name)
            public = [name for name in dir(loaded) if not name.startswith("_")]
            raise UsageError(f"{where} has no {part!r}{did_you_mean(part, public)}")
        loaded = getattr(loaded, part)
    return loaded


def stored_lifecycle(store: Store, queue: str) -> Lifecycle | None:
    """The newest rules that a queue was opened with; None where a store has only their names."""
    versions = store.store_for(queue).rules(queue)
    return _read_rules(versions[-1].definition) if versions and versions[-1].version else None


@lru_cache(maxsize=64)
def _read_rules(definition: str) -> Lifecycle | None:
    try:
        return lifecycle_from_json(definition)
    except (TypeError, ValueError, KeyError):  # written by a newer version
        return None


def load_handler(name: str, *, batch: bool) -> Callable[..., Any]:
    loaded = load_object(name)
    if not callable(loaded):
        raise UsageError(f"{name} is not a function but a {type(loaded).__name__}")
    handler: Callable[..., Any] = loaded
    try:
        require_plain_function(handler, batch=batch)
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    return handler


def find_lifecycle(name: str) -> Lifecycle:
    """The registered lifecycle of that name, or the one ``module:attribute`` is or returns."""
    known = lifecycles()
    if name in known:
        return known[name]()
    if ":" not in name:
        raise UsageError(
            f"there is no lifecycle {name!r}{did_you_mean(name, known) or ':'} "
            f"there are {', '.join(known)}, and your own as module:attribute"
        )
    loaded = load_object(name)
    if callable(loaded) and not isinstance(loaded, Lifecycle):
        _require_no_arguments(name, loaded)
        loaded = loaded()
    if not isinstance(loaded, Lifecycle):
        raise UsageError(f"{name} must be or return a lifecycle, not a {type(loaded).__name__}")
    return loaded


def _require_no_arguments(name: str, function: Callable[..., Any]) -> None:
    """Checked before the call: a TypeError from inside the function is an error of its own."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)  # as it is called
    except (TypeError, ValueError):  # it does not say what it takes
        return
    try:
        signature.bind()
    except TypeError as problem:
        raise UsageError(f"{name} cannot be called without arguments: {problem}") from problem
