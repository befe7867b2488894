"""Modules of the newest Google Ads API in Google's own client library.

Its packages import each other whole: more than a thousand modules, which takes each test process a
second or two. Here each package is its folder and nothing more; what a module needs, it imports.
"""

import importlib
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from google.ads import googleads

_FOLDER = Path(googleads.__file__).parent
VERSION = max((one.name for one in _FOLDER.glob("v[0-9]*")), key=lambda name: int(name[1:]))


def google_module(name: str) -> Any:
    """A module of the newest version of the client library."""
    _name_packages()
    return importlib.import_module(f"{googleads.__name__}.{VERSION}.{name}")


@cache
def _name_packages() -> None:
    version = _FOLDER / VERSION
    for folder in (version, *version.glob("[a-z]*"), *version.glob("[a-z]*/types")):
        package = ModuleType(".".join((googleads.__name__, *folder.relative_to(_FOLDER).parts)))
        package.__path__ = [str(folder)]
        sys.modules.setdefault(package.__name__, package)
