import os
import shlex
import subprocess
import sys

import typer

from kesin import __version__
from kesin.cli.commands import COMMANDS
from kesin.cli.root import app
from kesin.workloads import COMMAND_GROUPS
from tests.cli.programs import KESIN, on_terminal

HEAVY = ("pydantic", "psycopg", "structlog", "rich", "asyncio", "kesin.store.sql.store")


def commands(command, path=()):
    yield path, command
    context = command.context_class(command)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from commands(command.get_command(context, name), (*path, name))


ALL = list(commands(typer.main.get_command(app)))
NAMED = dict(ALL)
LEAVES = {path for path, command in ALL if not hasattr(command, "list_commands")}


def test_every_command_has_a_help_that_fits_a_terminal(kesin, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for path, command in ALL:
        assert command.help.strip().split("\n")[0].endswith("."), path
        options = [param for param in command.params if not getattr(param, "hidden", False)]
        assert [(path, option.name) for option in options if not getattr(option, "help", None)] == []
        answer = kesin(*path, "--help")
        assert (answer.code, answer.err, "Usage: " in answer.out) == (0, "", True), path
        assert [(path, line) for line in answer.lines if len(line) > 80 or "<int" in line or "<float" in line] == []
        if path not in LEAVES:
            assert not any(line.endswith("...") for line in answer.lines[1:]), f"a summary of {path} is cut short"


def test_the_list_shows_each_command_with_the_first_sentence_of_its_help():
    first = {name: NAMED[name,].help.partition("\n")[0] for name in COMMANDS}
    listed = {name: command["summary"] for name, command in COMMANDS.items()}
    shortened = {name for name in COMMANDS if first[name] != listed[name]}
    assert shortened == {"simulate", "demo"}  # theirs would not fit a line


def test_the_list_shows_each_group_with_its_own_help():
    assert {name: NAMED[name,].help for name in COMMAND_GROUPS} == COMMAND_GROUPS
    groups = [path[0] for path in NAMED if len(path) == 1][-len(COMMAND_GROUPS) :]
    assert groups == list(COMMAND_GROUPS)


def test_every_command_has_an_example_and_every_example_parses():
    for path, command in ALL:
        if path not in LEAVES:
            continue
        shown = [line.strip() for line in (command.epilog or "").splitlines()[2:]]
        examples = [shlex.split(line.partition(" < ")[0].partition(" > ")[0]) for line in shown]
        assert any(tuple(example[1 : len(path) + 1]) == path for example in examples), path
        for _, *words in examples:
            length = next(n for n in range(1, 4) if tuple(words[:n]) in LEAVES)
            NAMED[tuple(words[:length])].make_context("kesin", words[length:])


def test_every_command_that_asks_takes_yes_in_short_too():
    asking = {path: param.opts for path, command in ALL for param in command.params
              if "--yes" in param.opts}  # fmt: skip
    of_kesin = {("jobs", "act"), ("lifecycle", "retire"), ("store", "copy")}
    of_kesin |= {("site", "import"), ("site", "remove")}
    assert asking.keys() == {*of_kesin, ("oci", "import"), ("oci", "simulate-script")}
    assert all("-y" in spellings for spellings in asking.values())


def test_no_unknown_and_unfinished_commands_are_usage_errors_that_lead_to_the_help(kesin):
    answer = kesin()
    assert (answer.code, "Commands:" in answer.err + answer.out) == (2, True)
    answer = kesin("statz")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "'stats'" in answer.err
    answer = kesin("jobs", "list")
    assert answer.code == 2
    assert answer.err == "kesin: Missing argument 'QUEUE'. (try 'kesin jobs list --help')\n"
    assert kesin("--version").out == f"kesin {__version__}\n"


def test_the_help_imports_no_heavy_module():
    script = (
        "import atexit, sys, kesin; before = set(sys.modules); from kesin.cli import main; "
        "atexit.register(lambda: print(*sorted(set(sys.modules) - before))); main()"
    )
    environment = os.environ | {"COLUMNS": "90"}  # another width than that of the stored help
    command = [sys.executable, "-c", script, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    shown, _, new = done.stdout.rpartition("\n\n")
    assert "Commands:" in shown
    assert "kesin.cli.commands" in new.split()
    assert [name for name in new.split() if name.startswith(HEAVY)] == []


def test_the_usage_names_kesin_also_under_python_m(programs):
    assert "Usage: kesin " in programs.run("--help").out


def test_on_a_terminal_the_help_has_panels(tmp_path):
    answer = on_terminal([*KESIN, "--help"], tmp_path, [], PYTHONHASHSEED="0")  # a fresh start
    assert "╭─" in answer.out


COMPLETED = (
    ("bash", "kesin li", ["lifecycle"]),
    ("bash", "kesin pdf ", ["render", "templates", "doctor"]),
    ("bash", "kesin lifecycle show pdf_", ["pdf_batches", "pdf_webhooks"]),
    ("bash", "kesin worker opt", ["optiplan"]),
    ("zsh", "kesin stats o", ["oci", "optiplan"]),
    ("fish", "kesin jobs sh", ["show"]),
)


def test_completion_offers_commands_and_names(programs, monkeypatch):
    for shell, typed, offered in COMPLETED:
        monkeypatch.setenv("_KESIN_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", typed)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        output = programs.run().out
        if shell == "bash":
            assert output.split() == offered
        else:
            assert all(word in output for word in offered)


def test_the_completion_of_each_shell_is_shown_and_the_usage_names_kesin_also_under_python_m(programs):
    assert "Usage: kesin " in programs.run("--help").out
    by_name = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    for shell in ("bash", "zsh", "fish"):
        assert f"complete_{shell}" in programs.run("--show-completion", shell, **by_name).out
