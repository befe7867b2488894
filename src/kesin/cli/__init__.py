"""The command line: one module per command or group of commands.

Modules of commands import nothing heavy at the top: `kesin --help` must answer at once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from kesin.cli.commands import audit, doctor, jobs, keys, lifecycle, secrets, sites, store, users
from kesin.cli.commands.backup import backup, restore
from kesin.cli.commands.queues import enqueue, pause, resume
from kesin.cli.commands.serve import serve
from kesin.cli.commands.simulate import simulate
from kesin.cli.commands.stats import stats
from kesin.cli.commands.store import migrate
from kesin.cli.commands.sweep import sweep
from kesin.cli.commands.worker import worker
from kesin.cli.demo import demo
from kesin.cli.support.errors import FAILED, explain
from kesin.foundation.terminal import format_examples

__all__ = ["app", "main"]


QUICK_OPTIONS: Final = {"--help", "-h", "--version"}  # nothing is done, and nothing logged


class CommandGroup(TyperGroup):
    """The commands, and the groups of the workloads. Explains every error in one sentence.

    Workloads are loaded only if a command is not ours, so that ours start at once. The help lists
    the groups that come with Kesin without loading them.
    """

    _listing = False

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Our commands, then the groups of the workloads."""
        from kesin.workloads import COMMAND_GROUPS, has_plug_ins

        groups = _groups() if has_plug_ins() else COMMAND_GROUPS
        return [*super().list_commands(ctx), *groups]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """The command of that name, or the group of the workload of that name."""
        if self._listing:
            from kesin.workloads import COMMAND_GROUPS

            if cmd_name in COMMAND_GROUPS:
                return TyperGroup(name=cmd_name, help=COMMAND_GROUPS[cmd_name])
        return super().get_command(ctx, cmd_name) or _group(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

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
            code = _print_error("stopped, nothing was changed", FAILED)
        except Exception as problem:
            if type(problem).__name__ == "NoArgsIsHelpError":
                problem.show()  # type: ignore[attr-defined]
                code = problem.exit_code  # type: ignore[attr-defined]
            elif (report := explain(problem)) is not None:
                code = _print_error(report.sentence, report.code)
            else:
                raise
        if standalone_mode:
            sys.exit(code or 0)
        return code


def _groups() -> dict[str, typer.Typer]:
    from kesin.workloads import workloads

    return {
        name: workload.cli() for name, workload in workloads().items() if workload.cli is not None
    }


def _group(name: str) -> Any:
    group = _groups().get(name)
    if group is None:
        return None
    command = typer.main.get_command(group)
    command.name = name
    return command


def _print_error(sentence: str, code: int) -> int:
    from kesin.cli.support.output import visible_lines, warn

    sys.stdout.flush()
    warn(visible_lines(sentence))
    return code


BELOW = """\b
Settings are environment variables named KESIN_...: `kesin doctor` lists them.
Exit codes: 0 done; 1 it failed, or the answer is no; 2 badly asked or set up.

""" + format_examples("kesin doctor", "kesin serve", "kesin jobs list --help")

app = typer.Typer(
    name="kesin",
    cls=CommandGroup,
    help="Durable work queues in which every job provably ends.",
    epilog=BELOW,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from kesin import __version__
        from kesin.cli.support.output import say

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


app.command(
    epilog=format_examples(
        "kesin serve", "kesin serve --host 0.0.0.0 --port 8080", "kesin serve --no-workers"
    )
)(serve)
app.command(epilog=format_examples("kesin migrate --dry-run", "kesin migrate"))(migrate)
app.command(epilog=format_examples("kesin stats", "kesin stats emails --watch --interval 5"))(stats)
app.add_typer(jobs.app, name="jobs")
app.add_typer(lifecycle.app, name="lifecycle")
app.command(
    epilog=format_examples(
        'kesin enqueue emails \'{"to": "ada@example.org"}\' --lifecycle task',
        "kesin enqueue emails - --tenant ankara < payloads.ndjson",
    )
)(enqueue)
app.command(
    epilog=format_examples(
        "kesin worker emails --handler mails.tasks:send --threads 8",
        "kesin worker pdf pdf_batches pdf_webhooks --processes 2",
    )
)(worker)
app.command(epilog=format_examples("kesin sweep", "kesin sweep --every 60"))(sweep)
app.command(
    epilog=format_examples(
        "kesin pause emails --reason 'the server is being moved'", "kesin pause oci --tenant ankara"
    )
)(pause)
app.command(epilog=format_examples("kesin resume emails"))(resume)
app.add_typer(audit.app, name="audit")
app.add_typer(users.app, name="user")
app.add_typer(keys.app, name="key")
app.add_typer(sites.app, name="site")
app.add_typer(secrets.app, name="secrets")
app.add_typer(store.app, name="store")
app.command(epilog=format_examples("kesin backup /backups/monday"))(backup)
app.command(
    epilog=format_examples(
        "kesin restore /backups/monday --check", "kesin restore /backups/monday --replace"
    )
)(restore)
app.command(
    epilog=format_examples("kesin simulate task --seed 7 --steps 100000"),
    short_help="Run queues under an adversary, and check every step.",
)(simulate)
app.command(epilog=format_examples("kesin doctor", "kesin doctor --json"))(doctor.doctor)
app.command(
    epilog=format_examples("kesin demo", "kesin demo --for 60 --keep"),
    short_help="Run the service with demonstration data.",
)(demo)


def _start_quickly() -> None:
    """Save every command a fifth of its start-up time.

    What imports create stays, so the garbage collector need not go through it each time. structlog
    imports rich, to draw tracebacks that we print plainly.
    """
    gc.set_threshold(20_000)
    if "rich" not in sys.modules and QUICK_OPTIONS.isdisjoint(sys.argv):
        modules: dict[str, Any] = sys.modules
        modules["rich"] = None  # an import of it fails
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
