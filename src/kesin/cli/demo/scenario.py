"""The demonstration from its begin to its end."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Final, TextIO

from kesin.cli.demo.common import BRISK, QUIET_SITE, SITE, STROLL, News, Pace, People, invited
from kesin.cli.demo.screen import Watch, screen
from kesin.cli.demo.service import LOG, Running, Streams, own_folder, serving, streaming
from kesin.cli.demo.tour import Stops, print_door, print_kept, print_tour, title, told_end
from kesin.cli.support.errors import Failure
from kesin.cli.support.output import say
from kesin.cli.support.signals import Stop, stop_on_signals
from kesin.foundation.logs import set_up_logs
from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import DATABASE_FILE
from kesin.workloads.oci.demo import NO_CLICK, ROWS, SEED, TWINS, Sales, Script
from kesin.workloads.optiplan import demo as optiplan
from kesin.workloads.pdf import demo as pdf

TICK_S: Final = 0.5
PATIENCE_S: Final = 180.0  # for all of it to come to rest
FIRST_PDF_S: Final = 30.0
QUIET_ROWS: Final = 40
QUIETER: Final = 5
_ASK_AGAIN: Final = f"start it again with --keep and look into {LOG}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended."""

    good: bool
    stuck: bool


@dataclass(frozen=True, slots=True)
class Trades:
    """What can be shown on this machine."""

    pdf: bool
    optiplan: bool

    @property
    def left_out(self) -> frozenset[str]:
        """Queues that nothing could work on."""
        none: frozenset[str] = frozenset()
        return (none if self.pdf else pdf.QUEUES) | (
            none if self.optiplan else frozenset({optiplan.QUEUE})
        )


class Show:
    """One run of it."""

    def __init__(self, running: Running, people: People, pace: Pace, trades: Trades) -> None:
        self._running = running
        self._people = people
        self._pace = pace
        self._trades = trades
        self.news = News()
        chance = random.Random(SEED)  # a story, no secret
        where, keys = running.address, people.site_keys
        self._sales = Sales(where, SITE, keys[SITE], self.news, chance)
        self._quiet_sales = Sales(where, QUIET_SITE, keys[QUIET_SITE], self.news, chance)
        self._script = Script(where, SITE, keys[SITE], pace, self.news)
        self._quiet_script = Script(where, QUIET_SITE, keys[QUIET_SITE], pace, self.news)
        self._chance = chance

    @property
    def uploaded(self) -> Counter[str]:
        """What Google would have."""
        return self._script.uploaded + self._quiet_script.uploaded

    def bring_sales(self, streams: Streams) -> None:
        """All of a site's, a few of another's; and the scripts begin."""
        answers = self._sales.bring(ROWS, twins=TWINS, no_click=NO_CLICK)
        title("Work comes in")
        say(
            f"  {ROWS} phone sales: {answers['queued']} queued, {answers['duplicate']} were sent "
            f"twice, {answers['rejected']} more refused at the door, for want of a click"
        )
        self._quiet_sales.bring(QUIET_ROWS)
        pace = self._pace
        streams.every(pace.script_every_s, self._script.run)
        streams.every(QUIETER * pace.script_every_s, self._quiet_script.run_well)
        if pace.sales_every_s is not None:
            streams.every(pace.sales_every_s, self._sales.trickle)
            streams.every(QUIETER * pace.sales_every_s, self._quiet_sales.trickle)

    def bring_orders(self, streams: Streams) -> str:
        """A few, and one that is held; the job of that one."""
        if not self._trades.optiplan:
            return ""
        key = self._people.desk_key
        orders = optiplan.Orders(self._running.address, key, self.news, self._chance)
        held = orders.bring_from_stranger()
        for _ in range(self._pace.orders):
            orders.bring()
        say(f"  {self._pace.orders + 1} cutting orders, one of them of a customer nobody knows")
        streams.beside(orders.cut)
        streams.every(self._pace.order_every_s, orders.bring)
        return held

    def bring_invoices(self, streams: Streams, stop: Stop) -> str:
        """Some, one of which cannot be right; the job of the first. '' if nobody makes any."""
        if not self._trades.pdf:
            return ""
        invoices = pdf.Invoices(self._running.address, self._people.desk_key)
        until = time.monotonic() + FIRST_PDF_S
        first = ""
        while not first:
            try:
                first = invoices.bring()
            except Unavailable:
                if time.monotonic() > until:
                    self.news.tell(f"no process that makes PDFs came up: {_ASK_AGAIN}")
                    return ""
                if stop.wait(TICK_S):
                    return ""
        say(f"  {pdf.INVOICES} invoices, one of them with a total that its lines do not have")
        for _ in range(pdf.INVOICES - 1):
            invoices.bring()
        streams.every(self._pace.invoice_every_s, invoices.bring)
        return first


def shown(seconds: float | None, port: int | None, *, attended: bool, keep: bool) -> Outcome:
    """Set it up, show it, take it down."""
    pace = STROLL if attended or seconds is not None else BRISK
    for_ever = attended and seconds is None
    with own_folder(keep=keep) as folder, stop_on_signals() as stop:
        try:
            with (folder / LOG).open("w", encoding="utf-8") as log, redirect_stderr(log):
                set_up_logs("console", "info")
                show, stuck = _performed(pace, port, stop, log, seconds, for_ever=for_ever)
            good = told_end(folder / DATABASE_FILE, show.news, show.uploaded)
        finally:
            if keep:
                print_kept(folder)
            elif not optiplan.what_is_missing():
                optiplan.end_optimiser()
    return Outcome(good, stuck)


def _performed(
    pace: Pace,
    port: int | None,
    stop: Stop,
    log: TextIO,
    seconds: float | None,
    *,
    for_ever: bool,
) -> tuple[Show, bool]:
    trades = _looked_around()
    with serving(pace, trades.left_out, port, log) as running:
        people = invited(running.service.accounts)
        print_door(running.address, people)
        show = Show(running, people, pace, trades)
        with streaming(show.news) as streams:
            show.bring_sales(streams)
            held = show.bring_orders(streams)
            invoice = show.bring_invoices(streams, stop)
            stops = Stops(held, invoice, running.worker_pids, pace.goes_on)
            print_tour(running.address, stops)
            say()
            _watched(running, show, stop, seconds, for_ever=for_ever)
        say("\nstopping: what runs may finish, the rest is given back")
    return show, running.alive


def _looked_around() -> Trades:
    """Say what this machine lacks, and go on without it."""
    about_pdfs, draws = pdf.what_is_missing()
    no_orders = optiplan.what_is_missing()
    for text in (about_pdfs, no_orders):
        if text:
            say(f"note: {text}")
    return Trades(draws, not no_orders)


def _watched(
    running: Running, show: Show, stop: Stop, seconds: float | None, *, for_ever: bool
) -> None:
    """Until it is asked to stop, its time is over, or everything has come to rest."""
    watch = Watch(running, show.news)
    begin = time.monotonic()
    with screen() as seen:
        while True:
            seen.show(watch.look(), show.news.heard())
            lasted = time.monotonic() - begin
            if not running.alive:
                raise Failure(f"the service ended by itself: {_ASK_AGAIN}")
            if stop.asked or (seconds is not None and lasted >= seconds):
                return
            if seconds is None and not for_ever:
                if watch.at_rest():
                    return
                if lasted > PATIENCE_S:
                    raise Failure(f"not all work came to rest within {PATIENCE_S:g} s")
            stop.wait(TICK_S)
