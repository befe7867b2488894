"""Short methods for the adjustments of a site."""

import random
from typing import Any

from kesin.lifecycle.model import Job
from kesin.workloads.oci.google.connection_check import channels_of
from kesin.workloads.oci.uploader import AdjustmentUploader
from tests.workloads.oci.own_site import MINUTE, OwnSite, ok

QUEUE = "oci_adjustments"


def row(number: int = 1, kind: str = "RESTATE", **fields: Any) -> dict[str, Any]:
    """An adjustment of the sale of this number; None removes a field."""
    given: dict[str, Any] = {"externalId": f"sale-{number}", "adjustmentId": "a1", "type": kind}
    given |= {"value": 50, "currency": "TRY"} if kind == "RESTATE" else {}
    return {name: value for name, value in {**given, **fields}.items() if value is not None}


def post(site: OwnSite, *rows: Any) -> list[dict[str, Any]]:
    """Post adjustments; returns the results."""
    body = {"siteId": site.id, "adjustments": list(rows)}
    return list(ok(site.request("POST", "adjustments", site.producer, json=body))["results"])


def queued(site: OwnSite, *rows: Any, outcome: str) -> list[str]:
    """Post adjustments that are queued with this outcome; returns their ids."""
    results = post(site, *rows)
    assert {(one["result"], one.get("outcome")) for one in results} == {("queued", outcome)}
    return [one["id"] for one in results]


def job(site: OwnSite, job_id: str) -> Job:
    return site.oci.service.queues[QUEUE].find([job_id])[job_id]


def states(site: OwnSite, ids: list[str]) -> list[str]:
    return [job(site, job_id).state for job_id in ids]


def turn(site: OwnSite) -> dict[str, int]:
    """Run one turn of the worker of adjustments; returns the number of rows by state."""
    context = site.oci.service.workload_context(QUEUE)
    channels, rng = channels_of(site.oci.settings), random.Random(1)
    worker = AdjustmentUploader(context, channels, threads=1, rng=rng)
    return dict(worker.run_once())


def settle(site: OwnSite, seconds: float = 16 * MINUTE) -> dict[str, int]:
    """Let the leases of senders pass, then run a turn."""
    site.clock.advance(seconds)
    return turn(site)
