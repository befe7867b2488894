"""What the oci workload promises: 10 000 rows in a call, exports that stay quick, linear maps.

The path is the product's own, from the bytes of a request to rows in PROCESSING; only HTTP itself
is left out.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bench.loaded import load, timed
from bench.report import Report
from kesin.engine.access.accounts import Accounts
from kesin.engine.access.commands import Commands
from kesin.engine.queue import Queue
from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import system_actor
from kesin.foundation.settings import Settings
from kesin.store.directory import Directory
from kesin.store.open import open_store
from kesin.workloads.oci.conversions.conversion import Conversion, RowDefaults
from kesin.workloads.oci.conversions.ingest import ingest
from kesin.workloads.oci.conversions.parsing import parse_body
from kesin.workloads.oci.google.channel import UploadRow
from kesin.workloads.oci.google.classify import ADJUSTMENTS
from kesin.workloads.oci.google.google_ads import read_upload
from kesin.workloads.oci.lifecycle import adjustment_lifecycle, oci_lifecycle
from kesin.workloads.oci.operations import SiteStats
from kesin.workloads.oci.script import ack, export
from kesin.workloads.oci.site import SiteContext

ROWS = 10_000  # the largest call
EXPORTED = 1_000
REPEATS = 10
SITE = "north"
MAPPED = (500, 1_000, 2_000)


def run(report: Report, store: str, address) -> None:
    """Measure on one store; ``address`` makes a new database by name."""
    figures = _at_sizes({size: address(f"oci_{size}") for size in (10_000, 1_000_000)})
    report.say(f"## {store}")
    report.table(
        ("rows already stored", "ingest 10,000 (s)", "export 1,000 (ms)", "ack 1,000 (ms)", "stats (ms)"),
        [
            (
                f"{one['rows']:,}",
                f"{one['ingest_s']:.2f}",
                f"{one['export_ms']:.0f}",
                f"{one['ack_ms']:.0f}",
                f"{one['stats_ms']:.2f}",
            )
            for one in figures
        ],
    )
    for what in ("export", "ack", "stats"):
        grown = figures[1][f"{what}_ms"] / figures[0][f"{what}_ms"]
        report.aim(f"{store}: {what}, 10⁴ → 10⁶ rows", grown, most=1.5)


def mapping(report: Report) -> None:
    """How long it takes to find the rows of a partial failure in which every row failed."""
    retracted = ("RETRACT", datetime(2026, 3, 2, tzinfo=UTC))
    report.say("## A partial failure in which every row failed")
    for what, adjusted, *error in (
        ("conversions", None, "conversionUploadError", "UNPARSEABLE_GCLID"),
        ("conversion_adjustments", retracted, ADJUSTMENTS, "CONVERSION_EXPIRED"),
    ):
        costs = {}
        for count in MAPPED:
            rows = [UploadRow(str(n), _conversion(n), adjusted) for n in range(count)]
            body = _all_failed(count, what, *error)
            costs[count] = 1_000 * min(timed(partial(read_upload, body, rows))[1] for _ in range(REPEATS))
        report.table(
            (f"{what} = errors", "mapped in (ms)", "µs per row"),
            [(f"{n:,}", f"{ms:.1f}", f"{1_000 * ms / n:.1f}") for n, ms in costs.items()],
        )
        least, most = MAPPED[0], MAPPED[-1]
        slower = (costs[most] / most) / (costs[least] / least)
        report.aim(f"mapping of {what}, per row: {most:,} rows / {least} rows", slower, most=1.5)


def identifiers(report: Report, address: Callable[[str], str]) -> None:
    """The processor time of a call with consent, e-mail and phone to hash, and of one without.

    The runs take turns, and each figure is a median; on SQLite, where this process does all the
    work of a call.
    """
    site = _site(address("oci_identifiers"))
    settings = {"enhanced": True, "phone_country": "TR"}
    directory = site.context.commands.accounts
    directory.set_site_settings(system_actor("bench"), SITE, "oci", settings)
    record = directory.find_site(SITE)
    assert record is not None
    site = SiteContext(site.context, record)
    spent: dict[str, list[float]] = {"without": [], "with": []}
    for turn in range(2 * REPEATS):
        kind = ("without", "with")[turn % 2]
        rows = [_row(turn * ROWS + n) for n in range(ROWS)]
        if kind == "with":
            rows = [{**row, **_person(n)} for n, row in enumerate(rows)]
        body = "\n".join(map(json.dumps, rows)).encode()
        before = time.process_time()
        _post(site, body)
        spent[kind].append(time.process_time() - before)
    site.queue.store.close()
    plain, hashed = (statistics.median(spent[kind]) for kind in ("without", "with"))
    report.say("## Identifiers and consent")
    report.table(
        ("10,000 rows", "CPU time (s)"),
        [("without", f"{plain:.2f}"), ("with consent, e-mail and phone", f"{hashed:.2f}")],
    )
    report.aim("ingest with hashing / without", hashed / plain, most=1.2)


def _person(number: int) -> dict[str, Any]:
    consent = {"adUserData": "granted", "adPersonalization": "denied"}
    phone = f"0532 {number // 10_000:03d} {number % 10_000:04d}"
    return {"consent": consent, "email": f"Buyer.{number}+sale@Gmail.com", "phone": phone}


def _at_sizes(addresses: dict[int, str]) -> list[dict[str, Any]]:
    """Measure sites with so many rows stored beside, in turn: a slow minute falls on all."""
    body = "\n".join(json.dumps(_row(n)) for n in range(ROWS)).encode()
    sites, ingest_s, spent = {}, {}, {}
    for size, address in addresses.items():
        sites[size] = _site(address)
        load(sites[size].queue, size, tenant=SITE, state="COMPLETED")
        spent[size] = {"export": [], "ack": [], "stats": []}
        ingest_s[size] = timed(partial(_post, sites[size], body))[1]
    for _ in range(REPEATS):
        for size, site in sites.items():
            items, seconds = timed(partial(export, site, limit=EXPORTED, actor="bench"))
            assert len(items) == EXPORTED
            spent[size]["export"].append(seconds)
            report, seconds = timed(partial(ack, site, [one["id"] for one in items], actor="bench"))
            assert report.updated == EXPORTED
            spent[size]["ack"].append(seconds)
            moves = site.queue.store.move_counts("oci")
            spent[size]["stats"].append(timed(partial(SiteStats, site, moves))[1])
    for site in sites.values():
        site.queue.store.close()
    medians = {
        size: {f"{what}_ms": 1_000 * statistics.median(each) for what, each in kinds.items()}
        for size, kinds in spent.items()
    }
    return [{"rows": n, "ingest_s": ingest_s[n], **medians[n]} for n in addresses]


def _post(site: SiteContext, body: bytes) -> None:
    _, rows = parse_body(body, "application/x-ndjson")
    results = ingest(site, rows, actor=system_actor("bench"))
    assert all(one.result == "queued" for one in results)


def _site(address: str) -> SiteContext:
    store = open_store(address)
    accounts = Accounts(Directory(store))
    queue = Queue("oci", oci_lifecycle(), store)
    adjustments = Queue("oci_adjustments", adjustment_lifecycle(), store)
    site = accounts.add_site(system_actor("bench"), SITE)
    commands = Commands({"oci": queue, "oci_adjustments": adjustments}, accounts)
    return SiteContext(WorkloadContext(Settings(data_dir=Path()), commands, queue), site)


def _row(number: int) -> dict[str, Any]:
    at = datetime.now(tz=UTC) - timedelta(days=1, seconds=number)
    return {
        "externalId": f"sale-{number}",
        "gclid": f"Cj0KCQiA_bench_{number:08d}",
        "conversionName": "Phone sale",
        "conversionTime": at.isoformat(timespec="seconds"),
        "conversionValue": 1_500.75,
        "conversionCurrency": "TRY",
    }


def _conversion(number: int) -> Conversion:
    return Conversion.from_payload(_row(number), RowDefaults(SITE, None, ""))


def _all_failed(count: int, field: str, group: str, value: str) -> dict[str, Any]:
    errors = [
        {
            "errorCode": {group: value},
            "message": "The imported gclid could not be decoded.",
            "location": {"fieldPathElements": [{"fieldName": field, "index": n}, {"fieldName": "gclid"}]},
        }
        for n in range(count)
    ]
    details = [{"@type": "type.googleapis.com/google.ads.googleads.v26.errors.GoogleAdsFailure", "errors": errors}]
    return {"results": [{}] * count, "partialFailureError": {"code": 3, "message": "several", "details": details}}
