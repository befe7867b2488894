"""The last revision of conversions, and what a refusal stops in all of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kesin.foundation.permissions import Actor
from kesin.foundation.text import canonical_json
from kesin.lifecycle.model import Change, Job
from kesin.workloads.oci.conversions import conversion
from kesin.workloads.oci.lifecycle import CONSENT_DENIED
from kesin.workloads.oci.site import SiteContext

DENIED_NOTE: Final = CONSENT_DENIED.code
GRANTED_NOTE: Final = "CONSENT_GRANTED"
_SENT: Final = ("PROCESSING", "COMPLETED")
_STOPPED_AT_ONCE: Final = 100  # conversions, each with all its revisions
USUAL_REVISIONS: Final = 4  # looked up first
LOOKUP_BATCH: Final = 100  # conversions per lookup of later revisions


def external_id_of(row: conversion.ParsedRow) -> str:
    """The external id of a row, as far as it has one."""
    value = conversion.fields_of(row).get("externalId")
    return str(value).strip() if isinstance(value, str | int) else ""


def latest_revisions(site: SiteContext, external_ids: Sequence[str]) -> dict[str, Job]:
    """Find the last revision of each conversion, even if an old one has been pruned."""
    latest: dict[str, tuple[int, str]] = {}

    def look_up(names: Sequence[str], revisions: range) -> None:
        keys = {conversion.key_of(name, n): (name, n) for name in names for n in revisions}
        for key, job_id in site.queue.holders(site.id, list(keys)).items():
            name, revision = keys[key]
            latest[name] = max(latest.get(name, (0, "")), (revision, job_id))

    names = list(dict.fromkeys(name for name in external_ids if name))
    look_up(names, range(1, USUAL_REVISIONS + 1))
    usual_last = (USUAL_REVISIONS, "")
    maybe_later = [name for name in names if latest.get(name, usual_last)[0] == USUAL_REVISIONS]
    for start in range(0, len(maybe_later), LOOKUP_BATCH):
        batch = maybe_later[start : start + LOOKUP_BATCH]
        look_up(batch, range(USUAL_REVISIONS + 1, conversion.MAX_REVISION + 1))
    jobs = site.queue.find([job_id for _, job_id in latest.values()]) if latest else {}
    return {name: jobs[job_id] for name, (_, job_id) in latest.items() if job_id in jobs}


def stop(site: SiteContext, external_ids: Sequence[str], actor: Actor) -> None:
    """Stop refused conversions; one that Google may have keeps its data and is never resent."""
    for start in range(0, len(external_ids), _STOPPED_AT_ONCE):
        names = external_ids[start : start + _STOPPED_AT_ONCE]
        with site.queue.store.transaction():
            latest = latest_revisions(site, names)
            earlier = [
                conversion.key_of(name, number)
                for name, job in latest.items()
                for number in range(1, int((job.dedup_key or "").partition("\x1f")[2] or 1))
            ]
            ids = [job.id for job in latest.values()]
            ids += site.queue.holders(site.id, earlier).values() if earlier else ()
            jobs = site.queue.find(ids).values() if earlier else latest.values()
            refused = find_refused(site, jobs)
            moving = [job for job in jobs if job.state not in _SENT and job.id not in refused]
            again = [Change(job.id) for job in moving if job.state != "QUEUED"]
            site.apply("RESET_TO_QUEUED", again, role="operator", actor=actor.name)
            unsent = [job for job in moving if awaits_first_claim(job)]
            denied = [amended(job, **{conversion.CONSENT_FIELDS[0]: "denied"}) for job in unsent]
            site.apply("correct", denied, role="producer", actor=actor.name)
            withhold(site, [job.id for job in moving], actor)
            if moving:  # one may have been claimed meanwhile
                jobs = site.queue.find(ids).values()
            said = _last_said(site, jobs)
            unsaid = [job for job in jobs if said.get(job.id) != DENIED_NOTE]
            note_consents(site, unsaid, DENIED_NOTE, actor)


def note_consents(site: SiteContext, jobs: Iterable[Job], kind: str, actor: Actor) -> None:
    """Note a refusal, or that it is lifted: it counts until the row takes new data."""
    for job in jobs:
        site.note_event(kind, actor.name, job.id, seq=job.seq)


def find_refused(site: SiteContext, jobs: Iterable[Job]) -> set[str]:
    """The ids of those whose person refused, before the row was sent or later."""
    jobs = list(jobs)
    said = _last_said(site, jobs)
    return {job.id for job in jobs if said.get(job.id, job.error_code) == DENIED_NOTE}


def _last_said(site: SiteContext, jobs: Iterable[Job]) -> dict[str, str]:
    """The last word on the consent of each row with the data it has; its payload goes first."""
    by_id, said = {job.id: job for job in jobs}, dict[str, str]()
    claimed = [job.id for job in by_id.values() if job.claim_seq]  # others have no such note
    for note in site.queue.notes(*claimed) if claimed else ():
        job = by_id[str(note.job_id)]
        if note.kind in (DENIED_NOTE, GRANTED_NOTE):
            seq = json.loads(note.details or "{}").get("seq", job.payload_seq)
            said |= {job.id: note.kind} if seq >= job.payload_seq else {}
    rows = [job for job in by_id.values() if isinstance(job.payload, Mapping)]
    denied = [job.id for job in rows if job.payload.get(conversion.CONSENT_FIELDS[0]) == "denied"]
    return said | dict.fromkeys(denied, DENIED_NOTE)


def amended(job: Job, note: str | None = None, /, **fields: Any) -> Change:
    """The row with these fields: whatever takes it back, they are found before a claim."""
    old = job.payload if isinstance(job.payload, dict) else {}
    payload = canonical_json({**old, **fields})
    sold_at = job.stamp_1 or job.created_at  # conversion_at is the lifecycle's first stamp
    ends = {"expires_at": job.stamp_4} if job.stamp_4 else {}  # its fourth stamp
    stamps = {"conversion_at": sold_at, **ends}
    return Change(job.id, payload=payload, stamps=stamps, run_at=job.run_at, note=note)


def withhold(site: SiteContext, job_ids: Iterable[str | None], actor: Actor) -> None:
    """Stop waiting rows whose consent is denied; one in flight is not stopped."""
    changes = [Change(job_id) for job_id in dict.fromkeys(job_ids) if job_id]
    site.apply("withhold", changes, actor=actor.name)


def awaits_first_claim(job: Job) -> bool:
    """Whether it was claimed never, or not with the data it has."""
    return job.claim_seq <= job.payload_seq
