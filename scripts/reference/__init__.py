"""The reference, written from the code: commands, HTTP, settings, error codes."""

from __future__ import annotations

from .cli import cli_page
from .errors import errors_page
from .figures import readme
from .http import http_page
from .settings import settings_page
from .text import ROOT

__all__ = ["ROOT", "pages"]


def pages() -> dict[str, str]:
    """Every generated page by its place, and README.md, which is generated in part."""
    return {
        "docs/reference/cli.md": cli_page(),
        "docs/reference/http.md": http_page(),
        "docs/reference/settings.md": settings_page(),
        "docs/reference/errors.md": errors_page("en"),
        "docs/tr/hatalar.md": errors_page("tr"),
        "README.md": readme(),
    }
