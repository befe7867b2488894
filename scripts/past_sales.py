"""A site's sales of some weeks and two hours of a script that dies in every way it can.

The rows live under a clock of their own, so hours pass in a second. The script calls the same
functions as over HTTP, only without the wire.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.sweeper import Sweeper
from kesin.engine.workload import WorkloadContext
from kesin.foundation.clock import ManualClock
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.store.contract import Store
from kesin.store.directory import Directory
from kesin.store.limits import MAX_PAGE
from kesin.store.records import Filter
from kesin.workloads.common.api_client import ApiResponse, Send
from kesin.workloads.oci.cli.script_simulator import Crash, ScriptSimulator
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.oci.script import Report, ack, ack_failed, export
from kesin.workloads.oci.site import HEARTBEAT, WORKLOAD, SiteContext

SITE: Final = "bosphorus-plumbing"
ROWS: Final = 500
SEED: Final = 7
PAGE: Final = 200
LEASE_S: Final = 16 * 60  # a script's claim is over by then
PAUSE_S: Final = 25 * 60  # and so is the pause after a passing failure
_ROOT: Final = system_actor("demo")


def sell(store: Store, clock: ManualClock) -> None:
    """Bring the sales in and let the script take them, until every one is done or failed."""
    queue = Queue(WORKLOAD, oci_lifecycle(), store, clock=clock, seed=SEED)
    commands = Commands({WORKLOAD: queue}, Accounts(Directory(store), clock))
    house = WorkloadContext(Settings.model_construct(), commands, queue)
    site = SiteContext(house, commands.accounts.add_site(_ROOT, SITE, name="Bosphorus Plumbing"))
    chance = random.Random(SEED)
    ingest(site, _sales(clock, chance), actor=_ROOT)
    send = _doors(site)
    script = ScriptSimulator(send, site.id, rng=chance, fail_share=0.06, limit=PAGE)
    thrower = ScriptSimulator(send, site.id, rng=chance, upload_error_share=1, limit=PAGE)
    script.run(Crash.AFTER_EXPORT)
    _wait(house, clock, LEASE_S)
    script.run(Crash.BEFORE_ACK)
    _wait(house, clock, LEASE_S)
    thrower.run()
    _wait(house, clock, PAUSE_S)
    script.run()
    _mend(site)
    script.run()


def _sales(clock: ManualClock, chance: random.Random) -> list[dict[str, Any]]:
    now = datetime.fromtimestamp(clock.monotonic(), UTC)
    rows = []
    for number in range(ROWS):
        at = now - timedelta(minutes=chance.randrange(60, 40 * 24 * 60))
        rows.append(
            {
                "externalId": f"call-{number}",
                "gclid": f"Cj0KCQiA{chance.getrandbits(64):016x}",
                "conversionName": "Phone sale",
                "conversionTime": at.isoformat(timespec="seconds"),
                "conversionValue": chance.randrange(400, 9_000),
            }
        )
    return rows


def _doors(site: SiteContext) -> Send:
    """What the service would answer."""

    def send(_method: str, path: str, body: Mapping[str, Any] | None) -> ApiResponse:
        asked = urlsplit(path)
        told = dict(body or {})
        match asked.path.rpartition("/")[2]:
            case "google-ads-export":
                limit = int(parse_qs(asked.query)["limit"][0])
                return ApiResponse(200, {}, export(site, limit=limit, actor="key:script"))
            case "ack":
                return _heard(ack(site, told["queueIds"], actor="key:script"))
            case "ack-failed":
                report = ack_failed(
                    site,
                    told["queueIds"],
                    code=told["errorCode"],
                    message=told["errorMessage"],
                    category=told["errorCategory"],
                    actor="key:script",
                )
                return _heard(report)
            case _:
                site.put_metadata(HEARTBEAT, {**told, "at": site.queue.now()})
                return ApiResponse(200, {}, {"ok": True})

    return send


def _heard(report: Report) -> ApiResponse:
    return ApiResponse(200, {}, {"ok": True, "updated": report["updated"], "refused": report["refused"]})


def _wait(house: WorkloadContext, clock: ManualClock, seconds: int) -> None:
    """Time passes, and the clock makes its moves."""
    clock.advance(seconds)
    Sweeper([house.queue]).sweep(("cap", "recover", "revive"))


def _mend(site: SiteContext) -> None:
    """Whoever sends the sales corrects every second one that failed because of its data."""
    where = Filter(states=("FAILED",), tenants=(site.id,))
    dead = site.queue.jobs(where, limit=MAX_PAGE).jobs[::2]
    rows = [{**job.data, "conversionValue": 1_000} for job in dead]
    ingest(site, rows, actor=_ROOT)
