"""Progress bars of commands that take long."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kesin.foundation.terminal import console

Advance = Callable[[int], None]  # called with how many more are done


@contextmanager
def bars(*, shown: bool, of_bytes: bool = False) -> Iterator[Callable[[str, int], Advance]]:
    """Progress bars on a terminal, each made from a name and a total; none without a terminal."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _what, _total: lambda _more: None
        return
    from rich import progress as rich

    count = rich.DownloadColumn() if of_bytes else rich.MofNCompleteColumn()
    columns = ("{task.description}", rich.BarColumn(), count, rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=console(stderr=True), transient=True) as progress:

        def bar(what: str, total: int) -> Advance:
            task = progress.add_task(what, total=total)
            return lambda more: progress.advance(task, more)

        yield bar
