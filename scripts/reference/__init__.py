"""The pages that are written from the code: commands, HTTP, Python, settings, errors, limits."""

from __future__ import annotations

from .cli import cli_page, plain_help
from .errors import errors_page
from .figures import readme
from .http import http_page
from .limits import limits_page, unlisted
from .manager import manager_script
from .python import python_page
from .settings import settings_page
from .text import ROOT

__all__ = ["ROOT", "limits_page", "pages", "unlisted"]


def pages() -> dict[str, str]:
    """Every generated page by its place, and README.md, which is generated in part."""
    return {
        "docs/reference/cli.md": cli_page(),
        "src/kesin/cli/help.txt": plain_help(),
        "docs/reference/http.md": http_page(),
        "docs/reference/python.md": python_page(),
        "docs/reference/settings.md": settings_page(),
        "docs/reference/errors.md": errors_page("en"),
        "docs/tr/hatalar.md": errors_page("tr"),
        "docs/limits.md": limits_page(),
        "scripts/google-ads-oci/ManagerScript.js": manager_script(),
        "README.md": readme(),
    }
