"""What the demonstration prints at its start and its end: the sign-in, a tour, a summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kesin.cli.commands.audit import print_reports, replay_queues
from kesin.cli.demo.service import ADMIN, OPERATOR
from kesin.cli.support.inspection import open_for_reading
from kesin.foundation.terminal import console, format_counts, on_terminal, print_table, say
from kesin.store.open import open_store
from kesin.workloads.common.demo import LOG_FILE, DemoContext, DemoPart, TourStop


def print_title(text: str) -> None:
    """Print a heading."""
    if on_terminal():
        console().print(f"\n[bold]{text}[/bold]")
    else:
        say(f"\n{text}")


def print_sign_in(address: str, passwords: Mapping[str, str]) -> None:
    """Print the address and who can sign in."""
    print_title("Kesin runs, on this machine only")
    say(f"  address   {address}/dashboard")
    say(f"  sign in   {ADMIN}   {passwords[ADMIN]}   (may do everything)")
    say(f"  or as     {OPERATOR}    {passwords[OPERATOR]}   (an operator)")


def print_tour(context: DemoContext, parts: Iterable[DemoPart], pids: list[int]) -> None:
    """Print numbered steps, each with its page."""
    print_title("A tour: open these pages, in this order or any")
    for number, stop in enumerate(_stops(context, parts, pids), 1):
        say(f"  {number}. {stop.title}")
        say(f"     {stop.page}")
        say(f"     {stop.text}")


def _stops(context: DemoContext, parts: Iterable[DemoPart], pids: list[int]) -> Iterator[TourStop]:
    pages = f"{context.address}/dashboard"
    more = ": new work keeps coming in" if context.pace.goes_on else ""
    yield TourStop("The overview", pages, f"The numbers move while you look{more}.")
    for part in parts:
        yield from part.tour(pages)
    if pids:
        yield TourStop(
            "A worker that is killed",
            f"{pages}/workers",
            f"In another terminal: kill -9 {pids[0]}   Another process takes its place.",
        )
    yield TourStop(
        "Who did what",
        f"{pages}/audit",
        "As admin: every sign-in and every press of yours is there.",
    )


def print_summary(database: Path, context: DemoContext, parts: Mapping[str, DemoPart]) -> bool:
    """Print what was done; whether nothing was lost, and the history agrees with the jobs."""
    store = open_store(database)
    try:
        names = [name for name in store.queues() if name in parts]
        for name in names:
            open_for_reading(store, name)
        print_title("What was done")
        print_table(
            ("queue", "jobs"), [(name, format_counts(store.stats(name).states)) for name in names]
        )
        complete = [part.summarize(context, store) for part in parts.values()]
        print_title("Every job made again from its events (kesin audit verify)")
        reports = replay_queues(store, names, shown=False)
        print_reports(reports)
    finally:
        store.close()
    agree = not any(report["different"] for report in reports)
    say("the history and the jobs agree" if agree else "the history and the jobs DIFFER")
    return agree and all(complete)


def print_kept(folder: Path, parts: Iterable[DemoPart]) -> None:
    """Print where the data is, and how to serve it again."""
    print_title(f"Kept in {folder}")
    say(f"  see it again     KESIN_DATA_DIR={folder} kesin serve   (the same passwords)")
    for part in parts:
        for label, path in part.kept_files(folder):
            say(f"  {label:<16} {path}")
    say(f"  the log          {folder / LOG_FILE}")
