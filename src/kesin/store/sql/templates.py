"""The SQL templates in ``queries/`` and the filling of their placeholders."""

import re
from functools import cache
from importlib.resources import files

_GAP = re.compile(r"\{(\w+)\}")
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def template(dialect: str, name: str) -> str:
    """The text of ``queries/<dialect>/<name>.sql``."""
    file = files("kesin.store.sql") / "queries" / dialect / f"{name}.sql"
    return file.read_text("utf-8").strip()


def fill(text: str, fragments: dict[str, str]) -> str:
    """The template with every placeholder filled; a missing fragment is a KeyError."""
    return _GAP.sub(lambda gap: fragments[gap.group(1)], text)


@cache
def shared_statements(file: str) -> dict[str, str]:
    """The statements of ``queries/<file>.sql`` by name, which every dialect writes its own way."""
    text = (files("kesin.store.sql") / "queries" / f"{file}.sql").read_text("utf-8")
    parts = _NAME.split(text)[1:]
    return dict(zip(parts[::2], (part.strip() for part in parts[1::2]), strict=True))
