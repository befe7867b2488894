"""The SQL templates in ``queries/`` and the filling of their placeholders."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_GAP = re.compile(r"\{(\w+)\}")


@cache
def template(dialect: str, name: str) -> str:
    """The text of ``queries/<dialect>/<name>.sql``."""
    file = files("kesin.store.sql") / "queries" / dialect / f"{name}.sql"
    return file.read_text("utf-8").strip()


def fill(text: str, fragments: dict[str, str]) -> str:
    """The template with every placeholder filled; a missing fragment is a KeyError."""
    return _GAP.sub(lambda gap: fragments[gap.group(1)], text)
