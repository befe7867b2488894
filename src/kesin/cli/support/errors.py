"""What goes wrong, in one sentence, with the right exit code and no traceback.

0 is done, 1 is "it failed", 2 is bad usage. An error nobody foresaw keeps its traceback: that is
a bug, and whoever mends it needs to see where.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

FAILED: Final = 1
BAD_USAGE: Final = 2


class Failure(Exception):
    """It could not be done; the message says why and what to do."""


class Usage(Exception):
    """The command line asks for something that does not exist or does not fit together."""


@dataclass(frozen=True, slots=True)
class Told:
    """What to say and how to exit."""

    sentence: str
    code: int


def explain(problem: BaseException) -> Told | None:
    """The sentence for a foreseen problem; None for a bug."""
    if isinstance(problem, Usage):
        return Told(str(problem), BAD_USAGE)
    if isinstance(problem, Failure):
        return Told(str(problem), FAILED)
    if hasattr(problem, "format_message") and hasattr(problem, "exit_code"):
        return _explain_parsing(problem)
    if isinstance(problem, ModuleNotFoundError):
        from kesin.foundation.extras import needed, remedy

        wanted = needed(problem)
        if wanted is None:
            return None
        library, extra = wanted
        return Told(f"this needs {library}: install it with `{remedy(extra)}`", FAILED)
    return _explain_kesin(problem) or _explain_system(problem)


def _explain_parsing(problem: BaseException) -> Told:
    """Typer's own: whichever click it carries, they have these attributes."""
    sentence = str(problem.format_message()).strip()  # type: ignore[attr-defined]
    context = getattr(problem, "ctx", None)
    if context is not None:
        sentence = f"{sentence} (try '{context.command_path} --help')"
    return Told(sentence, int(problem.exit_code))  # type: ignore[attr-defined]


def _explain_kesin(problem: BaseException) -> Told | None:
    from kesin.engine.validation import BadInput
    from kesin.foundation.problems import Invalid, Problem
    from kesin.foundation.settings import BadSettings
    from kesin.lifecycle.proof.rules import Unproved
    from kesin.lifecycle.vocabulary import DeclarationError
    from kesin.store.errors import StoreError

    if isinstance(problem, BadInput | BadSettings):
        return Told(str(problem), BAD_USAGE)
    if isinstance(problem, Problem):
        return Told(problem.message, BAD_USAGE if isinstance(problem, Invalid) else FAILED)
    if isinstance(problem, StoreError | Unproved | DeclarationError):
        return Told(str(problem).strip(), FAILED)
    return None


def _explain_system(problem: BaseException) -> Told | None:
    import sqlite3

    first_line = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
    if type(problem).__module__.split(".")[0] in ("psycopg", "psycopg_pool"):
        if type(problem).__name__ in ("UndefinedTable", "InvalidSchemaName", "UndefinedColumn"):
            return Told("the database has no kesin tables yet: run `kesin migrate` first", FAILED)
        return Told(f"PostgreSQL answered: {first_line}", FAILED)
    if isinstance(problem, sqlite3.Error):
        return Told(f"SQLite answered: {first_line}", FAILED)
    if isinstance(problem, OSError) and problem.strerror:
        where = f": {problem.filename}" if problem.filename else ""
        return Told(f"{problem.strerror}{where}", FAILED)
    return None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``: did you mean 'task'?``, or nothing where nothing is close."""
    close = get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else ""


def check_choice(what: str, word: str, choices: Iterable[str]) -> str:
    """The word if it is one of the choices; else Usage with the nearest and all of them."""
    known = list(choices)
    if word not in known:
        meant = did_you_mean(word, known) or ":"
        raise Usage(f"there is no {what} {word!r}{meant} it is one of {', '.join(known) or 'none'}")
    return word
