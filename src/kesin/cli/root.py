"""All commands under `kesin`. A command's module is imported when it is called."""

import sys
from functools import cache
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from kesin.cli.commands import COMMANDS
from kesin.cli.support.errors import FAILED, explain
from kesin.foundation.terminal import format_examples, say, visible_lines, warn

QUICK_OPTIONS: Final = {"--help", "-h", "--version"}  # nothing is done, and nothing logged


class CommandGroup(TyperGroup):
    """The commands, and the workloads' groups, loaded only when called; errors are one sentence."""

    _listing = False

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, command in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=command["summary"])

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Our commands, then the groups of the workloads."""
        from kesin.workloads import COMMAND_GROUPS, has_plug_ins

        groups = _groups() if has_plug_ins() else COMMAND_GROUPS
        return [*super().list_commands(ctx), *groups]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        if self._listing:
            from kesin.workloads import COMMAND_GROUPS

            if cmd_name in COMMAND_GROUPS:
                return TyperGroup(name=cmd_name, help=COMMAND_GROUPS[cmd_name])
            if cmd_name in COMMANDS:
                return super().get_command(ctx, cmd_name)
        if cmd_name in COMMANDS:
            return _command(cmd_name)
        if (group := _groups().get(cmd_name)) is None:
            return None
        command = typer.main.get_command(group)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def main(self, *args: Any, standalone_mode: bool = True, **options: Any) -> Any:
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except typer.Abort:
            code = _print_error("stopped; nothing was changed", FAILED)
        except Exception as problem:
            if type(problem).__name__ == "NoArgsIsHelpError":
                problem.show()  # type: ignore[attr-defined]
                code = problem.exit_code  # type: ignore[attr-defined]
            elif (report := explain(problem)) is not None:
                code = _print_error(*report)
            else:
                raise
        if standalone_mode:
            sys.exit(code or 0)
        return code


@cache
def _command(name: str) -> Any:
    command = COMMANDS[name]
    module, _, attribute = command["place"].partition(":")
    loaded = getattr(import_module(f"kesin.cli.{module}"), attribute)
    parent = _new_app()
    if isinstance(command["examples"], list):
        examples = format_examples(*command["examples"])
        parent.command(name, short_help=command["summary"], epilog=examples)(loaded)
        return typer.main.get_group(parent).commands[name]
    parent.add_typer(loaded, name=name, help=command["summary"])
    group: Any = typer.main.get_group(parent).commands[name]
    for subcommand, examples_of_one in command["examples"].items():
        group.commands[subcommand].epilog = format_examples(*examples_of_one)
    return group


def _groups() -> dict[str, typer.Typer]:
    from kesin.workloads import workloads

    return {name: each.cli() for name, each in workloads().items() if each.cli is not None}


def _print_error(sentence: str, code: int) -> int:
    sys.stdout.flush()
    warn(visible_lines(sentence))
    return code


def _new_app(**options: Any) -> typer.Typer:
    markup: Any = "rich" if sys.stdout.isatty() else None
    return typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=markup, **options)


BELOW = """\b Settings are environment variables named KESIN_...: `kesin doctor --all` lists them.
Exit codes: 0 success; 1 failure, or a check that did not pass; 2 usage or configuration error.

""" + format_examples("kesin doctor", "kesin serve", "kesin jobs list --help")

app = _new_app(
    name="kesin",
    cls=CommandGroup,
    help="Durable work queues in which every job provably ends.",
    epilog=BELOW,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from kesin import __version__

        say(f"kesin {__version__}")
        raise typer.Exit


@app.callback()
def _everything(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Durable work queues in which every job provably ends."""


def import_structlog() -> None:
    """Import structlog without rich: it would draw tracebacks that we print plainly."""
    if "rich" not in sys.modules and QUICK_OPTIONS.isdisjoint(sys.argv):
        modules: dict[str, Any] = sys.modules
        modules["rich"] = None  # an import of it fails
        try:
            import structlog  # noqa: F401
        finally:
            del modules["rich"]


def run() -> None:
    import_structlog()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    typer.main.get_command(app)(prog_name="kesin")
