"""Kesin: durable work queues in which every job provably ends."""

from functools import cache
from importlib import import_module
from typing import Any

from kesin.foundation.version import __version__ as __version__
from kesin.foundation.version import warn_renamed

_RENAMED = {"New": "NewJob", "Run": "RunContext"}  # old names, for one more release


@cache
def _homes() -> dict[str, str]:
    """The module of each public name, which is imported on first use: the help needs none."""
    import ast
    from pathlib import Path

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: str(node.module) for node in imports for alias in node.names}
    return {name: homes[name] for name in sorted(homes) if not name.startswith("_")}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warn_renamed(f"kesin.{name}", f"kesin.{_RENAMED[name]}")
        name = _RENAMED[name]
    if name == "__all__":
        value: Any = list(_homes())
    elif name.startswith("__") or name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        home = import_module(_homes()[name])
        if not hasattr(home, name):  # it is a module itself
            import_module(f"{home.__name__}.{name}")
        value = getattr(home, name)
    globals()[name] = value
    return value
