"""What the demonstration says first: where it is, who may sign in, and what to look at."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kesin.cli.commands.audit import print_reports, replayed
from kesin.cli.demo.common import ADMIN, OPERATOR, SITE, News, People
from kesin.cli.demo.screen import RECOVERED, TITLES
from kesin.cli.demo.service import LOG
from kesin.cli.support import context
from kesin.cli.support.output import console, on_terminal, print_table, say, tally
from kesin.store.contract import Store
from kesin.store.limits import MAX_PAGE
from kesin.store.open import open_store
from kesin.store.records import Filter
from kesin.workloads.oci.demo import CRASHES, QUEUED, RUNS
from kesin.workloads.optiplan.demo import CUT


def title(text: str) -> None:
    """A heading."""
    if on_terminal():
        console().print(f"\n[bold]{text}[/bold]")
    else:
        say(f"\n{text}")


def print_door(address: str, people: People) -> None:
    """The address and the sign-in."""
    title("Kesin runs, on this machine only")
    say(f"  address   {address}/dashboard")
    say(f"  sign in   {ADMIN}   {people.passwords[ADMIN]}   (may do everything)")
    say(f"  or as     {OPERATOR}    {people.passwords[OPERATOR]}   (an operator)")


@dataclass(frozen=True, slots=True)
class Stops:
    """What the tour points at; '' and nothing where this machine cannot show it."""

    held: str  # the job of an order
    invoice: str  # the job of a PDF
    pids: list[int]  # who makes PDFs
    goes_on: bool  # new work keeps coming in


def print_tour(address: str, stops: Stops) -> None:
    """Numbered steps, each with its page."""
    title("A tour: open these pages, in this order or any")
    for number, (what, where, do) in enumerate(_steps(f"{address}/dashboard", stops), 1):
        say(f"  {number}. {what}")
        say(f"     {where}")
        say(f"     {do}")


def _steps(pages: str, stops: Stops) -> Iterator[tuple[str, str, str]]:
    more = ": new work keeps coming in" if stops.goes_on else ""
    yield "The overview", pages, f"The numbers move while you look{more}."
    yield (
        "OCI Control of a site",
        f"{pages}/site/{SITE}/oci-control",
        "500 phone sales on their way to Google Ads. The script that takes them crashes at times.",
    )
    yield (
        "Conversions that failed",
        f"{pages}/queues/oci?state=FAILED",
        "Open one: what its code means, who must act. Tick some and press Retry (RETRY_SELECTED).",
    )
    if stops.held:
        yield (
            "A cutting order that waits for you",
            f"{pages}/optiplan",
            "Press “Add this customer”, “Keep”, then “Approve”: it is planned and goes to the saw.",
        )
        yield (
            "The same order as a job",
            f"{pages}/jobs/{stops.held}",
            "Its timeline, the next thing that will happen, the drawn plan once it is approved.",
        )
    if stops.invoice:
        yield (
            "An invoice, as the PDF it became",
            f"{pages}/jobs/{stops.invoice}",
            f"The PDF stands under what happened. As admin, make one of your own at {pages}/pdf",
        )
    if stops.pids:
        yield (
            "A worker that is killed",
            f"{pages}/workers",
            f"In another terminal: kill -9 {stops.pids[0]}   Another process takes its place.",
        )
    yield (
        "Who did what",
        f"{pages}/audit",
        "As admin: every sign-in and every press of yours is there.",
    )


_OCI: Final = "oci"


def told_end(database: Path, news: News, uploaded: Counter[str]) -> bool:
    """Tell it; whether everything is as it should be."""
    store = open_store(database)
    try:
        names = [name for name in store.queues() if name in TITLES]
        for name in names:
            context.look(store, name)
        title("What was done")
        print_table(("queue", "jobs"), [(name, tally(store.stats(name).states)) for name in names])
        sure = _told_sales(store, news, uploaded)
        if cut := news.times(CUT):
            say(f"the saw took {cut} cutting plans")
        title("Every job made again from its events (kesin audit verify)")
        reports = replayed(store, names, shown=False)
        print_reports(reports)
    finally:
        store.close()
    agree = not any(one["different"] for one in reports)
    say("the history and the jobs agree" if agree else "the history and the jobs DIFFER")
    return agree and sure


def _told_sales(store: Store, news: News, uploaded: Counter[str]) -> bool:
    """Whether every sale is there, and Google would have each that is said to be done."""
    lost = max(news.times(QUEUED) - store.stats(_OCI).total, 0)
    say(
        f"the script ran {news.times(RUNS)} times and crashed {news.times(CRASHES)} times; "
        f"{news.times(RECOVERED)} conversions came back from it, {lost} were lost"
    )
    twice = sum(times > 1 for times in uploaded.values())
    say(f"{twice} were uploaded twice under the same orderId, which Google counts once")
    missing = len(_completed(store) - uploaded.keys())
    if missing:
        say(f"{missing} are said to be done and were NEVER uploaded")
    return lost == missing == 0


def _completed(store: Store) -> set[str]:
    found: set[str] = set()
    cursor: str | None = None
    while True:
        page = store.jobs(_OCI, Filter(states=("COMPLETED",)), limit=MAX_PAGE, cursor=cursor)
        found.update(json.loads(job.payload)["orderId"] for job in page.jobs)
        cursor = page.cursor
        if cursor is None:
            return found


def print_kept(folder: Path) -> None:
    """Where it is, and how to see it again."""
    title(f"Kept in {folder}")
    say(f"  see it again     KESIN_DATA_DIR={folder} kesin serve   (the same passwords)")
    say(f"  the PDFs         {folder / 'artifacts' / 'pdfs'}")
    say(f"  the log          {folder / LOG}")
