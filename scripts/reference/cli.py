"""Every command with its arguments and options, as `--help` prints them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import typer

from kesin.cli.root import app

from .text import number, page, plain, table

_SHARED = ("--help", "--install-completion", "--show-completion")
_KINDS = {int: "N", float: "N", str: "TEXT"}


_OPENING = """# Commands

Every `kesin` command, with the text of its `--help`. All commands read the [settings](settings.md);
most have a `--json` option for scripts. Exit codes: 0 success; 1 failure, or a check that did not
pass; 2 usage or configuration error.
"""


def cli_page() -> str:
    """The page."""
    lines = [_OPENING]
    root = typer.main.get_command(app)
    for names, command in _commands(root, ("kesin",)):
        lines += _section(names, command)
    return page(lines)


def plain_help() -> str:
    """The help of all commands outside a terminal, as the parser writes it."""
    command = [sys.executable, "-m", "kesin.cli", "--help"]
    env = {**os.environ, "COLUMNS": "80"}  # which the stored text is not used for
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)  # noqa: S603  # our own
    return done.stdout


def _commands(command: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    context = command.context_class(command, info_name=names[-1])
    if not hasattr(command, "list_commands"):
        yield names, command
        return
    for name in command.list_commands(context):
        yield from _commands(command.get_command(context, name), (*names, name))


def _section(names: tuple[str, ...], command: Any) -> list[str]:
    context = command.context_class(command, info_name=" ".join(names))
    given = [one for one in command.get_params(context) if not set(one.opts) & set(_SHARED)]
    arguments = [one for one in given if one.param_type_name == "argument"]
    options = [one for one in given if one.param_type_name == "option" and not one.hidden]
    spelled = [_spelled(one) for one in arguments]
    usage = " ".join([*names, *(["[OPTIONS]"] if options else []), *spelled])
    return [
        f"## {' '.join(names)}",
        "",
        f"`{usage}`",
        "",
        *_paragraphs(command.help or ""),
        *table(("argument", "meaning"), [(f"`{_spelled(one)}`", _help(one)) for one in arguments]),
        *table(("option", "default", "meaning"), [(_option(one), _default(one), _help(one)) for one in options]),
        *_examples(command.epilog or ""),
    ]


def _examples(shown: str) -> list[str]:
    lines = [line.strip() for line in shown.splitlines()[2:]]  # below the mark and "Examples:"
    return ["```", *lines, "```", ""] if lines else []


def _paragraphs(shown: str) -> list[str]:
    lines: list[str] = []
    for part in plain(shown).replace("\b", "").split("\n\n"):
        lines += [" ".join(part.split()), ""]
    return lines


def _spelled(argument: Any) -> str:
    word = (argument.metavar or argument.name.upper()).strip("{}[]").removesuffix("...")
    word += "..." if argument.nargs == -1 else ""
    return word if argument.required else f"[{word}]"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    word = option.metavar or _KINDS[option.type_descriptor.annotation]
    return f"{names} {word.replace('|', ', ')}"


def _default(option: Any) -> str:
    if option.required:
        return "required"
    value = option.default
    if option.is_flag or value in (None, (), []) or callable(value):
        return ""
    return f"`{number(value)}`" if isinstance(value, str | int | float) else ""


def _help(parameter: Any) -> str:
    shown = plain(parameter.help or "")
    least, most = parameter.min, parameter.max
    if most is not None:
        return f"{shown} ({number(least)}…{number(most)})"
    return f"{shown} (at least {number(least)})" if least else shown
