"""Tables of cases that are run as one test: each case costs its own microseconds and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def table(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Any], Any]:
    """``pytest.mark.parametrize`` for tests that have no fixtures; a failure names its case."""

    def of(check: Callable[..., None]) -> Callable[[pytest.Subtests], None]:
        def test(subtests: pytest.Subtests) -> None:
            for name, case in rows:
                with subtests.test(msg=name):
                    check(**dict(zip(named, case, strict=True)))

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        test.__module__ = check.__module__
        return test

    named = (names,) if isinstance(names, str) else names
    rows: list[tuple[str, tuple[Any, ...]]] = []
    for case in cases:
        if hasattr(case, "marks"):  # a pytest.param, with all its arguments
            rows.append((str(case.id or case.values), case.values))
        else:
            rows.append((repr(case), (case,) if isinstance(names, str) else tuple(case)))
    assert rows, "a table without cases says nothing"
    return of
