"""The libraries of each extra, imported on first use, and the extra that brings a missing one."""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from traceback import walk_tb
from typing import Final

LIBRARIES: Final[Mapping[str, tuple[str, ...]]] = {
    "postgres": ("psycopg", "psycopg_pool"),
    "web": (
        *("anyio", "argon2", "babel", "cryptography", "fastapi", "jinja2", "prometheus_client"),
        *("httptools", "starlette", "uvicorn", "uvloop"),
    ),
    "oci": ("httpx",),
    "pdf": (*("jsonschema", "lxml", "markupsafe", "pikepdf", "playwright", "referencing"), *("weasyprint", "zxingcpp")),
    "einvoice": ("facturx", "saxonche"),
    "redis": ("hiredis", "redis", "rq"),
    "s3": ("obstore",),
    "optiplan": ("fpdf", "lxml", "openpyxl", "python_calamine", "segno"),
}
PURPOSES: Final[Mapping[str, str]] = {  # extra → what it is for
    "web": "`kesin serve` is used",
    "postgres": "the database is PostgreSQL",
    "redis": "PDF jobs are kept in Redis",
    "oci": "conversions are uploaded to Google",
    "pdf": "PDFs are rendered",
    "einvoice": "e-invoices are made from the variables of an invoice",
    "s3": "PDFs are kept in a bucket",
    "optiplan": "cutting orders are processed",
}
_WORKLOADS: Final = "kesin.workloads."


@cache
def missing_libraries(names: tuple[str, ...]) -> tuple[str, ...]:
    """The libraries that are not installed, found without importing them."""
    return tuple(name for name in names if find_spec(name) is None)


def extra_providing(name: str) -> str | None:
    return next((extra for extra, names in LIBRARIES.items() if name in names), None)


def missing_extra(problem: ImportError) -> tuple[str, str] | None:
    """The missing library and the extra to install: a workload's brings those of ``web`` too."""
    name = (problem.name or "").partition(".")[0]
    extra = extra_providing(name)
    if extra is None:
        return None
    if extra == "web":
        workloads = _importing_workloads(problem)
        extra = next((workload for workload in workloads if workload in LIBRARIES), extra)
    return name, extra


def _importing_workloads(problem: ImportError) -> Iterator[str]:
    """The workloads whose modules the import passed through."""
    for frame, _ in walk_tb(problem.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(_WORKLOADS):
            yield module.removeprefix(_WORKLOADS).partition(".")[0]


def install_command(extra: str) -> str:
    return f"pip install 'kesin[{extra}]'"
