"""Errors as one sentence with an exit code; an unforeseen one is a bug, with its traceback."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

FAILED: Final = 1
BAD_USAGE: Final = 2

ErrorReport = tuple[str, int]  # the sentence to print, and the exit code


class CommandError(Exception):
    """The command could not be done; the message says why and what to do."""


class UsageError(Exception):
    """The command line names something that does not exist, or options that exclude each other."""


def explain(problem: BaseException) -> ErrorReport | None:
    """The sentence for a foreseen problem; None for a bug."""
    if isinstance(problem, UsageError | CommandError):
        return str(problem), BAD_USAGE if isinstance(problem, UsageError) else FAILED
    if hasattr(problem, "format_message") and hasattr(problem, "exit_code"):
        # Typer's: with every version of click that it brings they have these attributes.
        context = getattr(problem, "ctx", None)
        hint = f" (try '{context.command_path} --help')" if context is not None else ""
        return f"{str(problem.format_message()).strip()}{hint}", int(problem.exit_code)
    if isinstance(problem, ModuleNotFoundError):
        from kesin.foundation.extras import install_command, missing_extra

        need = missing_extra(problem)
        if need is None:
            return None
        how = f"install it with `{install_command(need[1])}`"
        return f"this command needs {need[0]}: {how}", FAILED
    return _explain_kesin(problem) or _explain_system(problem)


def _explain_kesin(problem: BaseException) -> ErrorReport | None:
    from kesin.engine.validation import BadInput
    from kesin.foundation.problems import Invalid, Problem
    from kesin.foundation.settings import BadSettings
    from kesin.lifecycle.proof.rules import Unproved
    from kesin.lifecycle.vocabulary import DeclarationError
    from kesin.store.errors import StoreError

    if isinstance(problem, BadInput | BadSettings):
        return str(problem), BAD_USAGE
    if isinstance(problem, Problem):
        return problem.message, BAD_USAGE if isinstance(problem, Invalid) else FAILED
    if isinstance(problem, StoreError | Unproved | DeclarationError):
        return str(problem).strip(), FAILED
    return None


def _explain_system(problem: BaseException) -> ErrorReport | None:
    import sqlite3

    first_line = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
    if type(problem).__module__.split(".")[0] in ("psycopg", "psycopg_pool"):
        sentence = f"PostgreSQL reported: {first_line}"
        if type(problem).__name__ in ("UndefinedTable", "InvalidSchemaName", "UndefinedColumn"):
            sentence = "the database has no kesin tables yet: run `kesin migrate` first"
        return sentence, FAILED
    if isinstance(problem, sqlite3.Error):
        return f"SQLite reported: {first_line}", FAILED
    if isinstance(problem, OSError) and problem.strerror:
        where = f": {problem.filename}" if problem.filename else ""
        return f"{problem.strerror}{where}", FAILED
    return None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """``: did you mean 'task'?``, or nothing where nothing is close."""
    close = get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else ""


def check_choice(what: str, word: str, choices: Iterable[str]) -> str:
    """The word if it is one of the choices; else UsageError with the nearest and all of them."""
    known = list(choices)
    if word not in known:
        meant, listed = did_you_mean(word, known) or ":", ", ".join(known) or "none"
        raise UsageError(f"there is no {what} {word!r}{meant} the choices are {listed}")
    return word
