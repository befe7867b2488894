"""Tables of cases that are run as one test: each case costs its own microseconds and no more."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

NAME_LENGTH = 120  # of a case that fails


def table(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Any], Any]:
    """``pytest.mark.parametrize`` for cases that may share their fixtures.

    All cases are tried; those that fail are named.
    """

    def of(check: Callable[..., None]) -> Callable[..., None]:
        def test(**fixtures: Any) -> None:
            failures = []
            for name, case in rows:
                try:
                    check(**fixtures, **dict(zip(named, case, strict=True)))
                except Exception as failure:  # noqa: BLE001  # raised below, with the others
                    failure.add_note(f"the case {name}")
                    failures.append(failure)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(rows)} cases fail", failures)

        wanted = [one for name, one in inspect.signature(check).parameters.items() if name not in named]
        keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in wanted]
        test.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        test.__name__, test.__doc__ = check.__name__, check.__doc__
        test.__module__ = check.__module__
        return test

    named = (names,) if isinstance(names, str) else names
    rows: list[tuple[str, tuple[Any, ...]]] = []
    for case in cases:
        if hasattr(case, "marks"):  # a pytest.param, with all its arguments
            rows.append((str(case.id or case.values)[:NAME_LENGTH], case.values))
        else:
            rows.append((repr(case)[:NAME_LENGTH], (case,) if isinstance(names, str) else tuple(case)))
    assert rows, "a table without cases says nothing"
    return of
