"""Markdown that reads alike on GitHub and on the site."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
MADE: Final = "Do not edit: `python scripts/make-reference.py` writes this page."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table, and an empty one after it; nothing if there is no row."""
    body = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    if not body:
        return []
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body, ""]


def cell(words: str) -> str:
    """One line; a bar would end the cell, in code too."""
    return " ".join(words.split()).replace("|", "/")


def plain(words: str) -> str:
    """A docstring as Markdown: reST's double backticks become single ones."""
    return re.sub(r"``(.+?)``", r"`\1`", words).strip()


def number(value: object) -> str:
    """A default or limit; a whole number has no ".0"."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def anchor(heading: str) -> str:
    """The name GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def page(lines: Iterable[str], made: str = MADE) -> str:
    """The whole page, with who made it."""
    return "\n".join([*lines, made, ""])
