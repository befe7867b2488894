"""The tour's stop at Google Ads: sales of a site, and a script that dies in every way it can.

Hours pass in a second: the rows live under a clock of their own, which begins in the past and ends
before now. The script speaks with the same doors as over HTTP, only without the wire.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from kesin.cli.output import print_table, say, tally
from kesin.engine.accounts import Accounts
from kesin.engine.command import Commands
from kesin.engine.queue import Queue
from kesin.engine.sweeper import Sweeper
from kesin.foundation.access import system
from kesin.foundation.clock import ManualClock, wall_clock_us
from kesin.foundation.settings import Settings
from kesin.lifecycle.model import Job
from kesin.store.contract import MAX_PAGE, Filter, Store
from kesin.store.directory import Directory, Site
from kesin.workloads.oci.acks import Report, ack, ack_failed
from kesin.workloads.oci.advice import advice
from kesin.workloads.oci.export import export
from kesin.workloads.oci.ingest import ingest
from kesin.workloads.oci.lifecycle import oci_lifecycle
from kesin.workloads.oci.places import HEARTBEAT, WORKLOAD, put_fact
from kesin.workloads.oci.simulate import Crash, Heard, Ran, ScriptSimulator, Send
from kesin.workloads.workload import House

ROWS: Final = 500
TWINS: Final = 40
NO_CLICK: Final = 6
SEED: Final = 7
PAGE: Final = 200
SITE: Final = "bosphorus-plumbing"
HOUR_S: Final = 3_600
LEASE_S: Final = 16 * 60  # a script's claim is over by then
PAUSE_S: Final = 25 * 60  # and so is the pause after a passing failure
_DEMO: Final = system("demo")


def sell(store: Store, clock: ManualClock | None = None) -> bool:
    """Tell the story; whether every sale is where it should be."""
    clock = clock or ManualClock(wall_clock_us() - 2 * HOUR_S * 1_000_000)
    house = _house(store, clock)
    site = house.commands.accounts.add_site(_DEMO, SITE, name="Bosphorus Plumbing")
    chance = random.Random(SEED)
    _bring(house, site, clock, chance)
    script = ScriptSimulator(
        "", site.id, "", chance=chance, fail_share=0.06, limit=PAGE, send=_doors(house, site)
    )
    _run(script, "after-export", "takes rows and dies before it has uploaded any")
    _wait(house, clock, LEASE_S)
    _run(script, "before-ack", "uploads, tells what failed, and dies before it says what did not")
    _wait(house, clock, LEASE_S)
    thrower = ScriptSimulator(
        "", site.id, "", chance=chance, upload_error_share=1, limit=PAGE, send=_doors(house, site)
    )
    _run(thrower, None, "is told by Google to come back later")
    _wait(house, clock, PAUSE_S)
    _run(script, None, "runs to its end")
    _mend(house, site)
    _run(script, None, "takes what was mended")
    return _count(house, site, script)


def _house(store: Store, clock: ManualClock) -> House:
    queue = Queue(WORKLOAD, oci_lifecycle(), store, clock=clock, seed=SEED)
    commands = Commands({WORKLOAD: queue}, Accounts(Directory(store), clock))
    return House(Settings.model_construct(), commands, queue)  # none of the visitor's settings


def _bring(house: House, site: Site, clock: ManualClock, chance: random.Random) -> None:
    """The sales of some weeks, a few of them twice, a few without the click they came from."""
    now = datetime.fromtimestamp(clock.monotonic(), UTC)
    rows: list[dict[str, Any]] = []
    for number in range(ROWS + NO_CLICK):
        at = now - timedelta(minutes=chance.randrange(60, 40 * 24 * 60))
        row = {
            "externalId": f"call-{number}",
            "gclid": f"Cj0KCQiA{chance.getrandbits(64):016x}",
            "conversionName": "Phone sale",
            "conversionTime": at.isoformat(timespec="seconds"),
            "conversionValue": chance.randrange(400, 9_000),
        }
        rows.append(row if number < ROWS else {**row, "gclid": ""})
    results = ingest(house, site, rows + rows[:TWINS], actor=_DEMO.name)
    counts = Counter(one.result for one in results)
    why = Counter(one.code or "" for one in results if one.result == "rejected")
    say(
        f"   queued {counts['queued']}, duplicates {counts['duplicate']}, "
        f"rejected at the door {counts['rejected']} ({tally(dict(why))})"
    )


def _doors(house: House, site: Site) -> Send:
    """What the service would answer."""

    def send(_method: str, path: str, body: Mapping[str, Any] | None) -> Heard:
        asked = urlsplit(path)
        told = dict(body or {})
        match asked.path.rpartition("/")[2]:
            case "google-ads-export":
                limit = int(parse_qs(asked.query)["limit"][0])
                items = export(house, site, limit=limit, actor="key:script")
                return Heard(200, {}, items)
            case "ack":
                return _heard(ack(house, site, told["queueIds"], actor="key:script"))
            case "ack-failed":
                report = ack_failed(
                    house,
                    site,
                    told["queueIds"],
                    code=told["errorCode"],
                    message=told["errorMessage"],
                    category=told["errorCategory"],
                    actor="key:script",
                )
                return _heard(report)
            case _:
                put_fact(house, site, HEARTBEAT, {**told, "at": house.queue.now()})
                return Heard(200, {}, {"ok": True})

    return send


def _heard(report: Report) -> Heard:
    refused = [{"id": one, "reason": why} for one, why in report.refused]
    return Heard(200, {}, {"ok": True, "updated": report.updated, "refused": refused})


def _run(script: ScriptSimulator, crash: Crash | None, what: str) -> Ran:
    ran = script.run(crash)
    say(f"   the script {what}: took {ran.exported}, acked {ran.acked}, failed {ran.failed}")
    return ran


def _wait(house: House, clock: ManualClock, seconds: int) -> None:
    """Time passes, and the clock makes its moves."""
    clock.advance(seconds)
    swept = Sweeper([house.queue]).sweep(("cap", "recover", "revive")).moved
    moved = {move: n for (_, move), n in swept.items() if n}
    say(f"   {seconds // 60} minutes later the clock moved: {tally(moved) or 'nothing'}")


def _mend(house: House, site: Site) -> None:
    """Whoever sends the sales corrects every second one that failed because of its data."""
    dead = _rows(house, site, "FAILED")[::2]
    rows = [{**job.data, "conversionValue": 1_000} for job in dead]
    results = Counter(one.result for one in ingest(house, site, rows, actor=_DEMO.name))
    say(f"   half of the dead letters come back corrected: corrected {results['corrected']}")


def _rows(house: House, site: Site, state: str) -> list[Job]:
    where = Filter(states=(state,), tenants=(site.id,))
    return house.queue.jobs(where, limit=MAX_PAGE).jobs


def _count(house: House, site: Site, script: ScriptSimulator) -> bool:
    """Every sale is somewhere, with a reason, and Google has exactly the completed ones."""
    states = house.queue.stats().tenants[site.id]
    failed, completed = _rows(house, site, "FAILED"), _rows(house, site, "COMPLETED")
    elsewhere = ROWS - len(failed) - len(completed)
    say(f"   of {ROWS} sales: {tally(states)}; {elsewhere} are anywhere else")
    say(f"   {script.twice} were uploaded twice under the same orderId, which Google counts once")
    why = Counter(job.error_code or "" for job in failed)
    print_table(
        ("why", "sales", "what to do"),
        [(code, n, advice(code, "VALIDATION").act) for code, n in why.most_common()],
    )
    delivered = {json.loads(job.payload)["orderId"] for job in completed}
    explained = elsewhere == 0 and all(job.error_code for job in failed)
    return explained and delivered == set(script.uploaded)
