"""What the demonstration says last: what was done, and whether the history agrees with it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Final

from kesin.cli import bridge
from kesin.cli.audit import print_reports, replayed
from kesin.cli.demo.news import News
from kesin.cli.demo.oci import CRASHES, QUEUED, RUNS
from kesin.cli.demo.optiplan import CUT
from kesin.cli.demo.service import LOG
from kesin.cli.demo.tour import title
from kesin.cli.demo.watch import RECOVERED, TITLES
from kesin.cli.output import print_table, say, tally
from kesin.store.contract import Store
from kesin.store.limits import MAX_PAGE
from kesin.store.open import open_store
from kesin.store.records import Filter

_OCI: Final = "oci"


def told_end(database: Path, news: News, uploaded: Counter[str]) -> bool:
    """Tell it; whether everything is as it should be."""
    store = open_store(database)
    try:
        names = [name for name in store.queues() if name in TITLES]
        for name in names:
            bridge.look(store, name)
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
