"""`kesin demo`: the service with demonstration data, in a folder that is deleted afterwards."""

import os
import sys
from typing import Annotated

import typer

from kesin.cli.support.arguments import flag, option
from kesin.cli.support.errors import FAILED


def demo(
    seconds: Annotated[float | None, option("SECONDS", "Stop after this time.", "--for", min=1, max=86_400)] = None,
    port: Annotated[
        int | None,
        option("PORT", "The port; defaults to 8000, or to a free port if 8000 is in use.", min=0, max=65_535),
    ] = None,
    keep: Annotated[bool, flag("--keep", "Keep the data folder so that it can be served again.")] = False,
) -> None:
    """Run the service with demonstration data: sales with a crashing script, invoices, orders.

    Prints the address, two users with their passwords and a tour of the dashboard, then shows the
    number of jobs. In a terminal, it runs until Ctrl-C. Elsewhere, such as in a pipe or a build,
    it enqueues only the first jobs and exits when they are finished. At the end, it prints a
    summary and checks every job against its history.

    All data stays on this machine, in a temporary folder that is deleted at the end unless you
    pass --keep.
    """
    from kesin.cli.demo.scenario import run_demo

    attended = sys.stdin.isatty() and sys.stdout.isatty()
    good, stuck = run_demo(seconds, port, attended=attended, keep=keep)
    if stuck:  # a request hangs in a thread that nothing can end
        sys.stdout.flush()
        os._exit(0 if good else FAILED)
    if not good:
        raise typer.Exit(FAILED)
