"""What the demonstration says first: where it is, who may sign in, and what to look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kesin.cli.demo.people import ADMIN, OPERATOR, SITE, People
from kesin.cli.output import console, on_terminal, say


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
