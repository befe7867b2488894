"""The texts and calls of our Python, read once for all tests that look at them."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import kesin

SOURCE = Path(kesin.__file__).parent
KEPT = (ast.Call, ast.Constant, ast.JoinedStr, ast.BinOp)
# What no text or call is in: most of a tree.
LEAVES = {ast.Name, ast.Load, ast.Store, str, int, float, complex, bool, bytes, type(None), type(...)}


@cache
def nodes() -> tuple[tuple[str, ast.expr], ...]:
    """Every call and text, with the module it stands in."""
    gc.disable()  # a million nodes, and none is garbage before the end
    try:
        return tuple(
            (where, node)
            for source in sorted(SOURCE.rglob("*.py"))
            for where in [source.relative_to(SOURCE).as_posix()]
            for node in _walk(ast.parse(source.read_text("utf-8")))
            if isinstance(node, KEPT)
        )
    finally:
        gc.enable()


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Like ``ast.walk``, in a third of the time, without names."""
    unread = [tree]
    for node in unread:
        yield node
        for value in node.__dict__.values():
            kind = type(value)
            if kind is list:
                unread.extend(item for item in value if type(item) not in LEAVES)
            elif kind not in LEAVES:
                unread.append(value)
