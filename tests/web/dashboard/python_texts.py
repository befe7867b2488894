"""The texts and calls of our Python, read once for all tests that look at them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import kesin

SOURCE = Path(kesin.__file__).parent


@cache
def nodes() -> tuple[tuple[str, ast.expr], ...]:
    """Every call and text, with the module it stands in."""
    return tuple(
        (source.relative_to(SOURCE).as_posix(), node)
        for source in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(source.read_text("utf-8")))
        if isinstance(node, ast.Call | ast.Constant | ast.JoinedStr | ast.BinOp)
    )
