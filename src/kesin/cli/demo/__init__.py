"""`kesin demo`: the service with demonstration data, in a folder that is deleted afterwards."""

import os
import sys
from typing import Annotated

import typer

from kesin.cli.support.arguments import flag, option
from kesin.cli.support.errors import FAILED, CommandError


def demo(
    seconds: Annotated[
        float | None, option("SECONDS", "End it after so long.", "--for", min=1, max=86_400)
    ] = None,
    port: Annotated[
        int | None, option("PORT", "Listen here; else on 8000, or a free one.", min=0, max=65_535)
    ] = None,
    keep: Annotated[bool, flag("--keep", "Leave the data there, to serve it again.")] = False,
) -> None:
    """Run the service with demonstration data: sales with a crashing script, invoices, orders.

    Prints the address, the sign-in and a tour of the dashboard, then counts the jobs. On a
    terminal it goes on until Ctrl-C. Without one (a pipe, a build), or with no one to type, it
    brings in the first work only and ends by itself once all of it has come to rest. SIGTERM and
    Ctrl-C end it cleanly: a summary is printed and every job is checked against its history.

    Everything stays on this machine, in a temporary folder that is gone afterwards unless you
    --keep it.
    """
    try:
        from kesin.cli.demo.scenario import run_demo
    except ImportError as problem:
        raise CommandError(
            f"the demonstration needs {problem.name}: install it with `pip install 'kesin[all]'`"
        ) from None

    attended = sys.stdin.isatty() and sys.stdout.isatty()
    good, stuck = run_demo(seconds, port, attended=attended, keep=keep)
    if stuck:  # a request hangs in a thread that nothing can end
        sys.stdout.flush()
        os._exit(0 if good else FAILED)
    if not good:
        raise typer.Exit(FAILED)
