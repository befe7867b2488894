"""Looks up the last revision of conversions."""

from collections.abc import Sequence
from typing import Final

from kesin.lifecycle.model import Job
from kesin.workloads.oci.conversions.conversion import MAX_REVISION, ParsedRow, fields_of, key_of
from kesin.workloads.oci.site import SiteContext

USUAL_REVISIONS: Final = 4  # looked up first
LOOKUP_BATCH: Final = 100  # conversions per lookup of later revisions


def external_id_of(row: ParsedRow) -> str:
    """The external id of a row, as far as it has one."""
    value = fields_of(row).get("externalId")
    return str(value).strip() if isinstance(value, str | int) else ""


def latest_revisions(site: SiteContext, external_ids: Sequence[str]) -> dict[str, Job]:
    """Find the last revision of each conversion, even if an old one has been pruned."""
    latest: dict[str, tuple[int, str]] = {}

    def look_up(names: Sequence[str], revisions: range) -> None:
        keys = {key_of(name, number): (name, number) for name in names for number in revisions}
        for key, job_id in site.queue.holders(site.id, list(keys)).items():
            name, revision = keys[key]
            latest[name] = max(latest.get(name, (0, "")), (revision, job_id))

    names = list(dict.fromkeys(name for name in external_ids if name))
    look_up(names, range(1, USUAL_REVISIONS + 1))
    usual_last = (USUAL_REVISIONS, "")
    maybe_later = [name for name in names if latest.get(name, usual_last)[0] == USUAL_REVISIONS]
    for start in range(0, len(maybe_later), LOOKUP_BATCH):
        batch = maybe_later[start : start + LOOKUP_BATCH]
        look_up(batch, range(USUAL_REVISIONS + 1, MAX_REVISION + 1))
    jobs = site.queue.find([job_id for _, job_id in latest.values()]) if latest else {}
    return {name: jobs[job_id] for name, (_, job_id) in latest.items() if job_id in jobs}
