"""What a trade adds to the page of its jobs: a place in a registry, a template and its values.

The page knows no trade. A queue that has a function here gets a panel below the story; each one
imports its trade when it is first asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kesin.engine.access.commands import History
from kesin.foundation.logs import Logger
from kesin.foundation.problems import Problem
from kesin.foundation.text import decoded
from kesin.lifecycle.model import Job
from kesin.web.dashboard.frame.masking import masked, masked_text, pretty
from kesin.web.dashboard.frame.page import PageContext

log = Logger("kesin.dashboard")
MOST_EXCHANGES: Final = 20


@dataclass(frozen=True, slots=True)
class Panel:
    """A template and what it shows."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    frames: bool = False  # it shows a document of ours in a frame, under the job's story


Maker = Callable[[PageContext, History], Panel | None]


def panel_of(looking: PageContext, history: History) -> Panel | None:
    """What the trade adds; its trouble is no reason not to show the job."""
    maker = PANELS.get(history.job.queue)
    if maker is None:
        return None
    try:
        return maker(looking, history)
    except Problem as problem:
        return Panel("panel_away.html", {"message": problem.message})
    except Exception:
        log.exception("panel_failed", queue=history.job.queue)
        return Panel("panel_away.html", {"message": looking.say("It cannot be shown now.")})


def _pdf(looking: PageContext, history: History) -> Panel:
    """The PDF itself, for those whom its own door lets in."""
    job = history.job
    made = job.outcome if isinstance(job.outcome, dict) else {}
    actor = looking.actor
    return Panel(
        "panel_pdf.html",
        {
            "there": job.state == "succeeded",
            "state": job.state,
            "may": actor.has("pdf") and (actor.is_admin or job.tenant == actor.name),
            "pages": made.get("pages"),
        },
        frames=True,
    )


def _optiplan(looking: PageContext, history: History) -> Panel:
    """The cutting plan, the files, and what went to the saw."""
    from kesin.workloads.optiplan.pipeline.progress import Dossiers

    service, job = looking.service, history.job
    dossier = Dossiers(service.accounts.directory, service.queues[job.queue].now).read(job.id)
    return Panel(
        "panel_optiplan.html",
        {
            "drawn": bool(dossier.xml),
            "xml": dossier.xml,
            "imports": dossier.files,
            "deliveries": _deliveries(looking, job, dossier.deliveries),
            "invalid": pretty(masked(dossier.invalid)) if dossier.invalid else "",
        },
    )


def _deliveries(
    looking: PageContext, job: Job, tries: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Each try and what became of it, the newest first; the last one is told by the order."""
    words = {
        "open": looking.say("waits for the saw"),
        "withdrawn": looking.say("taken back"),
        "refused": looking.say("refused by the saw"),
    }
    found = []
    for one in tries[-MOST_EXCHANGES:]:
        sent = one["delivery"]
        files = [file["name"] for file in sent["files"]]
        found.append({"try": sent["try"], "files": files, "state": words[one["state"]]})
    if found and tries[-1]["state"] == "open" and job.state in {"DELIVERED", "DONE"}:
        found[-1]["state"] = looking.say("taken by the saw")
    return found[::-1]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came back from one upload."""

    at: int
    attempt: int
    move: str
    state: str
    code: str
    message: str
    request_id: str
    details: str


def _oci(looking: PageContext, history: History) -> Panel:
    """The row as it is sent to Google, and each answer."""
    from kesin.workloads.oci.conversions.conversion import Conversion, Unsendable
    from kesin.workloads.oci.google.data_manager import event
    from kesin.workloads.oci.google.google_ads import click_conversion

    job = history.job
    site = looking.service.accounts.find_site(job.tenant)
    channel = site.channel if site else "api"
    try:
        conversion = Conversion.of(job.data, job.tenant)
    except Unsendable as problem:
        asked, unsendable = "", problem.message
    else:
        unsendable = ""
        if channel == "data_manager":
            body: dict[str, Any] = {"events": [event(conversion)]}
        else:
            row = click_conversion(conversion, "customers/…/conversionActions/…")
            body = {"conversions": [row], "partialFailure": True}
        asked = pretty(masked(body))
    version = looking.service.settings.oci_google_version
    lines = {
        "data_manager": "POST https://datamanager.googleapis.com/v1/events:ingest",
        "api": f"POST https://googleads.googleapis.com/{version}/customers/…:uploadClickConversions",
    }
    return Panel(
        "panel_oci.html",
        {
            "line": lines.get(channel, ""),
            "asked": asked,
            "unsendable": unsendable,
            "exchanges": _exchanges(history),
        },
    )


def _exchanges(history: History) -> list[Exchange]:
    """The answers that the worker or the script left with their moves, newest first."""
    found = []
    for one in reversed(history.events):
        told = _loaded(one.note)
        result = _loaded(one.result)
        if not (told or result or one.error_code) or not one.from_state:
            continue
        spelled = {name: value for name, value in (told | result).items() if name != "requestId"}
        number = told.get("requestId") or result.get("requestId") or ""
        found.append(
            Exchange(
                one.at,
                one.attempt - one.attempt_base,
                one.move,
                one.to_state,
                one.error_code or "",
                masked_text(one.error_message) or "",
                str(number),
                pretty(masked(spelled)) if spelled else "",
            )
        )
        if len(found) == MOST_EXCHANGES:
            break
    return found


def _loaded(text: str | None) -> dict[str, Any]:
    told = decoded(text)
    return told if isinstance(told, dict) else {}


PANELS: Final[dict[str, Maker]] = {"pdf": _pdf, "optiplan": _optiplan, "oci": _oci}
