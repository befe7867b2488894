"""Phone sales of a site, and its Google Ads script: it acks, reports failures and crashes.

Nothing goes to Google. Sales and script come over HTTP, as they would in real life.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import Any, Final, Literal

from kesin.cli.demo.common import News, Pace
from kesin.foundation.clock import wall_clock_us
from kesin.foundation.problems import Problem
from kesin.foundation.terminal import counted
from kesin.lifecycle.budget import SECOND_US
from kesin.workloads.oci.cli.script_simulator import Crash, Ran, ScriptSimulator, over_http

ROWS: Final = 500
TWINS: Final = 40
NO_CLICK: Final = 6
FEW: Final = 4  # sales that come in together later on
FAIL_SHARE: Final = 0.06
SEED: Final = 7
CRASHES: Final = "script crashes"
RUNS: Final = "script runs"
QUEUED: Final = "sales queued"
_OLDEST_MIN: Final = 40 * 24 * 60

Turn = Crash | Literal["throws"] | None
TURNS: Final[Sequence[Turn]] = (
    None,
    "after-export",
    None,
    "before-ack",
    None,
    None,
    "throws",
    None,
    "after-upload",
    None,
    None,
)
_CRASHED: Final[Mapping[Crash, str]] = {
    "after-export": "took {exported} and crashed before it uploaded any",
    "after-upload": "uploaded {exported} and crashed before it could say so",
    "before-ack": (
        "uploaded {exported}, reported {failed} as failed, and crashed before it acknowledged "
        "the others"
    ),
}


class Sales:
    """A site's own program, which posts what was sold by phone."""

    def __init__(
        self, address: str, site: str, key: str, news: News, chance: random.Random
    ) -> None:
        self._send = over_http(address, key)
        self._site = site
        self._news = news
        self._chance = chance
        self._count = 0

    def bring(self, sales: int, *, twins: int = 0, no_click: int = 0) -> Counter[str]:
        """Post sales, some of them twice, some without the click they came from; the answers."""
        rows = [self._sale() for _ in range(sales)]
        lost = [{**self._sale(), "gclid": ""} for _ in range(no_click)]
        body = {"siteId": self._site, "conversions": [*rows, *lost, *rows[:twins]]}
        heard = self._send("POST", "/api/oci/conversions", body)
        if not isinstance(heard.body, dict) or "results" not in heard.body:
            raise Problem(f"conversions of {self._site} were answered with {heard.status}")
        answers = Counter(one["result"] for one in heard.body["results"])
        self._news.count(QUEUED, answers["queued"])
        return answers

    def trickle(self) -> None:
        """A few more."""
        self.bring(self._chance.randrange(1, FEW))

    def _sale(self) -> dict[str, Any]:
        self._count += 1
        now = datetime.fromtimestamp(wall_clock_us() / SECOND_US, UTC)
        ago = timedelta(minutes=self._chance.randrange(60, _OLDEST_MIN))
        return {
            "externalId": f"call-{self._count}",
            "gclid": f"Cj0KCQiA{self._chance.getrandbits(64):016x}",
            "conversionName": "Phone sale",
            "conversionTime": (now - ago).isoformat(timespec="seconds"),
            "conversionValue": self._chance.randrange(400, 9_000),
        }


class Script:
    """The script of a site, one page a run; every few runs something goes wrong with it."""

    def __init__(self, address: str, site: str, key: str, pace: Pace, news: News) -> None:
        chance = random.Random(f"{SEED}{site}")  # a story, no secret
        send = over_http(address, key)
        self._plain = ScriptSimulator(
            "", site, "", chance=chance, fail_share=FAIL_SHARE, limit=pace.page, pages=1, send=send
        )
        self._thrower = ScriptSimulator(
            "", site, "", chance=chance, upload_error_share=1, limit=pace.page, pages=1, send=send
        )
        self._site = site
        self._lease_s = pace.lease_s
        self._news = news
        self._turns = cycle(one for one in TURNS if pace.throws or one != "throws")
        self._turn: Turn = None
        self._paused = False

    @property
    def uploaded(self) -> Counter[str]:
        """Order id → how often Google would have got it."""
        return self._plain.uploaded

    def run(self) -> None:
        """One run. A crash that met no row is put off."""
        ran = self._thrower.run() if self._turn == "throws" else self._plain.run(self._turn)
        if ran.exported:
            self._news.count(RUNS)
            self._tell(ran)
            self._turn = next(self._turns)
        if ran.paused and not self._paused:
            self._news.tell(f"{self._site} is paused: its script gets nothing until you resume it")
        self._paused = ran.paused

    def run_well(self) -> None:
        """One run without a mishap."""
        self._plain.run()

    def _tell(self, ran: Ran) -> None:
        if ran.crashed is not None:
            self._news.count(CRASHES)
            what = _CRASHED[ran.crashed].format(
                exported=counted(ran.exported, "conversion"), failed=ran.failed or "none"
            )
            self._news.tell(
                f"the script {what}; they come back when its lease of {self._lease_s} s is over"
            )
        elif self._turn == "throws":
            self._news.tell(
                f"Google told the script to come back later: {counted(ran.failed, 'conversion')} "
                "will be tried again in about five minutes"
            )
