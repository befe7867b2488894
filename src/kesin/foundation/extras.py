"""What each extra of the package brings, and which one to install when a library is missing.

Whoever installs Kesin alone gets queues and the command line; each other part names an extra. A
library of one is imported where it is first used, and then this table knows what to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from traceback import walk_tb
from typing import Final

BRINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "postgres": ("psycopg", "psycopg_pool"),
    "web": (
        *("anyio", "argon2", "babel", "cryptography", "fastapi", "jinja2", "prometheus_client"),
        *("starlette", "uvicorn"),
    ),
    "oci": ("httpx",),
    "pdf": (
        *("jsonschema", "markupsafe", "pikepdf", "playwright", "referencing", "segno"),
        "weasyprint",
    ),
    "redis": ("hiredis", "redis", "rq"),
    "s3": ("obstore",),
    "optiplan": ("fpdf", "lxml", "openpyxl", "python_calamine"),
    "solver": ("highspy",),
}
_TRADES: Final = "kesin.workloads."


def missing(names: Iterable[str]) -> list[str]:
    """Those of these libraries that are not installed; none of them is imported."""
    return [name for name in names if find_spec(name) is None]


def extra_with(name: str) -> str | None:
    """The extra that brings a library."""
    return next((extra for extra, names in BRINGS.items() if name in names), None)


def needed(problem: ImportError) -> tuple[str, str] | None:
    """The library a failed import wanted, and the extra to install; None if no extra brings it.

    Every trade needs the web's libraries too, and its own extra brings both.
    """
    name = (problem.name or "").partition(".")[0]
    extra = extra_with(name)
    if extra is None:
        return None
    if extra == "web":
        extra = next((one for one in _asking(problem) if one in BRINGS), extra)
    return name, extra


def _asking(problem: ImportError) -> Iterator[str]:
    """The trades whose modules the import went through."""
    for frame, _ in walk_tb(problem.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(_TRADES):
            yield module.removeprefix(_TRADES).partition(".")[0]


def remedy(extra: str) -> str:
    """The command that brings an extra."""
    return f"pip install 'kesin[{extra}]'"
