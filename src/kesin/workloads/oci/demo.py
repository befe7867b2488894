"""The part of offline conversions in `kesin demo`, over HTTP: phone sales, scripts that crash."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from kesin.engine.queue import Queue
from kesin.engine.workload import Workload, WorkloadContext
from kesin.foundation.clock import wall_clock_us
from kesin.foundation.problems import Problem
from kesin.foundation.terminal import say
from kesin.lifecycle.budget import SECOND_US
from kesin.lifecycle.model import Job
from kesin.workloads.common import demo
from kesin.workloads.common.api_client import Send, over_http
from kesin.workloads.oci.cli.script_simulator import Crash, ScriptSimulator

if TYPE_CHECKING:
    from fastapi import APIRouter

SITES: Final = {"bosphorus-plumbing": "Bosphorus Plumbing", "galata-dental": "Galata Dental"}
SITE, QUIET_SITE = SITES
SCOPES: Final = ("oci:ingest", "oci:script")
SALES: Final = 500
DUPLICATES: Final = 40
WITHOUT_CLICK: Final = 6
QUIET_SALES: Final = 40
QUIETER: Final = 5  # times slower is the quiet site
MAX_LATER_SALES: Final = 4  # that come in together later on
FAIL_SHARE: Final = 0.06
SEED: Final = 7
_OLDEST_MIN: Final = 40 * 24 * 60


@dataclass(frozen=True, slots=True)
class ScriptPace:
    """How fast sales come in and scripts run; waits in seconds."""

    page: int  # conversions a run of the script takes
    every_s: float
    lease_s: int  # in real life 15 minutes: what a crashed script held comes back after it
    throws: bool = False  # Google may tell the script to come back in some minutes
    sales_every_s: float | None = None  # None: no more after the first


STROLL: Final = ScriptPace(page=25, every_s=2.0, lease_s=15, throws=True, sales_every_s=3.0)
BRISK: Final = ScriptPace(page=100, every_s=0.5, lease_s=3)

Turn = Crash | Literal["throws"] | None
MISHAPS: Final[Mapping[int, Turn]] = {
    1: Crash.AFTER_EXPORT, 3: Crash.BEFORE_ACK, 6: "throws", 8: Crash.AFTER_UPLOAD,
}  # fmt: skip
TURNS: Final[Sequence[Turn]] = [MISHAPS.get(run) for run in range(11)]


@dataclass
class Sales:
    """A site's own program, which posts what was sold by phone."""

    send: Send
    site: str
    chance: random.Random
    count: int = 0

    def post(self, sales: int, *, duplicates: int = 0, without_click: int = 0) -> Counter[str]:
        """Post sales, some of them twice, some without a click id; counts the results."""
        rows = [self._sale() for _ in range(sales)]
        clickless = [{**self._sale(), "gclid": ""} for _ in range(without_click)]
        body = {"siteId": self.site, "conversions": [*rows, *clickless, *rows[:duplicates]]}
        response = self.send("POST", "/api/oci/conversions", body)
        if not isinstance(response.body, dict) or "results" not in response.body:
            raise Problem(f"the response to conversions of {self.site} was {response.status}")
        return Counter(row["result"] for row in response.body["results"])

    def post_a_few(self) -> None:
        self.post(self.chance.randrange(1, MAX_LATER_SALES))

    def _sale(self) -> dict[str, Any]:
        self.count += 1
        now = datetime.fromtimestamp(wall_clock_us() / SECOND_US, UTC)
        ago = timedelta(minutes=self.chance.randrange(60, _OLDEST_MIN))
        return {
            "externalId": f"call-{self.count}",
            "gclid": f"Cj0KCQiA{self.chance.getrandbits(64):016x}",
            "conversionName": "Phone sale",
            "conversionTime": (now - ago).isoformat(timespec="seconds"),
            "conversionValue": self.chance.randrange(400, 9_000),
        }


class Script:
    """The script of a site, one page a run; every few runs something goes wrong with it."""

    def __init__(self, send: Send, site: str, pace: ScriptPace) -> None:
        chance = random.Random(f"{SEED}{site}")  # a story, no secret
        self.plain = ScriptSimulator(  # which nothing goes wrong with
            send, site, rng=chance, fail_share=FAIL_SHARE, limit=pace.page, pages=1
        )
        self._thrower = replace(self.plain, fail_share=0.0, upload_error_share=1.0)
        self._turns = cycle(turn for turn in TURNS if pace.throws or turn != "throws")
        self._turn: Turn = None

    def run(self) -> None:
        """Run it once. A crash that met no row is put off."""
        ran = self._thrower.run() if self._turn == "throws" else self.plain.run(self._turn)
        if ran.exported:
            self._turn = next(self._turns)


class _ShortLeases(Queue):
    """Claims last for seconds, whatever a site's settings say."""

    lease_s = 0.0

    def claim(self, worker: str, **options: Any) -> list[Job]:
        return super().claim(worker, **{**options, "lease_seconds": self.lease_s})


class OciDemo(demo.DemoPart):
    """Two sites: a busy one whose script crashes, and a quiet one."""

    title: ClassVar = "conversions"

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}

    def adapt(self, workload: Workload, *, goes_on: bool) -> Workload:
        """Scripts get less time than in real life, so that their jobs come back while one looks."""

        def routes(context: WorkloadContext) -> "APIRouter":
            from kesin.workloads.oci.api.routes import oci_router

            queue = context.queue
            hurried = _ShortLeases(queue.name, queue.lifecycle, queue.store, clock=queue.clock)
            hurried.lease_s = (STROLL if goes_on else BRISK).lease_s
            return oci_router(replace(context, queue=hurried))

        return replace(workload, routes=routes)

    def set_up(self, context: demo.DemoContext) -> None:
        accounts = context.accounts
        actor = demo.DEMO_ACTOR
        for site, name in SITES.items():
            accounts.add_site(actor, site, name=name)
            key, _ = accounts.create_key(actor, f"script of {site}", SCOPES, site=site, days=1)
            self._keys[site] = key

    def begin(self, context: demo.DemoContext) -> None:
        pace, chance = STROLL if context.goes_on else BRISK, context.chance
        sends = {site: over_http(context.address, key) for site, key in self._keys.items()}
        sales, quiet_sales = (Sales(each, site, chance) for site, each in sends.items())
        script, quiet_script = (Script(each, site, pace) for site, each in sends.items())
        results = sales.post(SALES, duplicates=DUPLICATES, without_click=WITHOUT_CLICK)
        say(
            f"  {SALES} phone sales: {results['queued']} queued, {results['duplicate']} of them "
            f"sent twice; {results['rejected']} others rejected, because they have no click id"
        )
        quiet_sales.post(QUIET_SALES)
        context.background.every(pace.every_s, script.run)
        context.background.every(QUIETER * pace.every_s, quiet_script.plain.run)
        if pace.sales_every_s is not None:
            context.background.every(pace.sales_every_s, sales.post_a_few)
            context.background.every(QUIETER * pace.sales_every_s, quiet_sales.post_a_few)

    def tour(self, pages: str) -> Iterable[demo.TourStop]:
        yield demo.TourStop(
            "OCI Control of a site",
            f"{pages}/site/{SITE}/oci-control",
            "500 phone sales on their way to Google Ads. The script that claims them sometimes crashes.",
        )
        yield demo.TourStop(
            "Conversions that failed",
            f"{pages}/queues/oci?state=FAILED",
            "Open one: it shows what its code means and who must act. Select some and press Retry (RETRY_SELECTED).",
        )
