"""Doors for people and scripts: the command line, one module a command group.

Modules here import nothing heavy at the top: `kesin --help` must answer at once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kesin.cli import audit, doctor, jobs, key, lifecycle, secrets, site, store, user
from kesin.cli.backup import backup
from kesin.cli.demo import demo
from kesin.cli.failures import FAILED, explain
from kesin.cli.queues import enqueue, pause, resume
from kesin.cli.restore import restore
from kesin.cli.schema import migrate
from kesin.cli.serve import serve
from kesin.cli.simulate import simulate
from kesin.cli.stats import stats
from kesin.cli.sweep import sweep
from kesin.cli.worker import worker

__all__ = ["app", "main"]


class Commands(TyperGroup):
    """Tells what went wrong in one sentence, whichever command it was.

    A workload's own group is looked for when a command is not ours, so that ours start at once.
    """

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Ours, then those of the workloads."""
        return [*super().list_commands(ctx), *_groups()]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """The command of that name, or the group of the workload of that name."""
        return super().get_command(ctx, cmd_name) or _group(cmd_name)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.Abort:
            code = _tell("stopped, nothing was changed", FAILED)
        except Exception as problem:
            if type(problem).__name__ == "NoArgsIsHelpError":
                problem.show()  # type: ignore[attr-defined]
                code = problem.exit_code  # type: ignore[attr-defined]
            elif (told := explain(problem)) is not None:
                code = _tell(told.sentence, told.code)
            else:
                raise
        if standalone_mode:
            sys.exit(code or 0)
        return code


def _groups() -> dict[str, typer.Typer]:
    from kesin.workloads import workloads

    return {name: one.cli() for name, one in workloads().items() if one.cli is not None}


def _group(name: str) -> Any:
    found = _groups().get(name)
    if found is None:
        return None
    command = typer.main.get_command(found)
    command.name = name
    return command


def _tell(sentence: str, code: int) -> int:
    from kesin.cli.output import visible_lines, warn

    sys.stdout.flush()
    warn(visible_lines(sentence))
    return code


app = typer.Typer(
    name="kesin",
    cls=Commands,
    help="Durable work queues in which every job provably ends.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        from kesin import __version__
        from kesin.cli.output import say

        say(f"kesin {__version__}")
        raise typer.Exit


@app.callback()
def _everything(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Durable work queues in which every job provably ends."""


app.command()(serve)
app.command()(migrate)
app.command()(stats)
app.add_typer(jobs.app, name="jobs")
app.add_typer(lifecycle.app, name="lifecycle")
app.command()(enqueue)
app.command()(worker)
app.command()(sweep)
app.command()(pause)
app.command()(resume)
app.add_typer(audit.app, name="audit")
app.add_typer(user.app, name="user")
app.add_typer(key.app, name="key")
app.add_typer(site.app, name="site")
app.add_typer(secrets.app, name="secrets")
app.add_typer(store.app, name="store")
app.command()(backup)
app.command()(restore)
app.command()(simulate)
app.command()(doctor.doctor)
app.command()(demo)


def _start_quickly() -> None:
    """Spare every command a fifth of its start.

    What imports make stays, and need not be looked through for garbage each time. structlog looks
    for rich as it is imported, to draw tracebacks that we have drawn plainly.
    """
    gc.set_threshold(20_000)
    if "rich" not in sys.modules and "--help" not in sys.argv:
        modules: dict[str, Any] = sys.modules
        modules["rich"] = None  # not to be found
        try:
            import structlog  # noqa: F401
        finally:
            del modules["rich"]


def main() -> None:
    """The `kesin` command."""
    _start_quickly()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    typer.main.get_command(app)(prog_name="kesin")
