"""A job's deliveries, try after try: what the machine has of one, the next never sends again.

A try that fails leaves files behind: refused, in the inbox, in the machine's hand, or cut. The next
one takes back what it can and takes over what the machine has, file by file, however the new XML
differs. So only the last try ever counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline.delivery import (
    Delivery,
    Parcel,
    Taken,
    plan_delivery,
    withdraw,
)
from kesin.workloads.optiplan.pipeline.progress import Dossier, Dossiers
from kesin.workloads.optiplan.pipeline.shared_folder import FolderAway
from kesin.workloads.optiplan.workshop.paths import INBOX

OPEN, WITHDRAWN, REFUSED = "open", "withdrawn", "refused"
_FOR_ALL: Final = ""  # the batch of an XML that is for all of them


def add_try(machine: Path, export: Path, job_id: str, dossier: Dossier) -> None:
    """Plan the next try and note it in the dossier; raises OrderProblem or FolderAway.

    To be kept before anything of it is sent. May be called again if it was not.
    """
    taken = _taken(machine, dossier)
    files = {}
    if _FOR_ALL not in taken:
        files = {_batch(dossier, name): export / name for name in dossier.xml}
    if taken and _FOR_ALL in files:
        raise OrderProblem(
            OptiCode.OSI_ACK_FAILED,
            "the machine has part of the order already, and the new XML is for all of it",
            {"files": [one.name for one in taken.values()]},
        )
    number = len(dossier.deliveries) + 1
    new = [path for batch, path in files.items() if batch not in taken]
    parcels = plan_delivery(new, job_id, number).files if new else ()
    _check_unchanged(parcels, dossier)
    delivery = Delivery(number, (*parcels, *taken.values()))
    dossier.deliveries.append({"delivery": delivery.as_json(), "state": OPEN})
    dossier.current = number - 1


def taken_back(machine: Path, dossier: Dossier, *, whole: bool = True) -> bool:
    """Take back what lies in the inbox; False once the machine has something of a try.

    Then the rest stays there, unless it is taken back without ``whole``. Raises FolderAway.
    """
    free = True
    for one in dossier.deliveries:
        had = withdraw(machine, _delivery(one), whole=whole and one["state"] != REFUSED)
        if isinstance(had, Taken) and one["state"] != REFUSED:
            free = False
        elif one["state"] == OPEN:
            one["state"] = WITHDRAWN
    return free


def withdrawn(machine: Path, dossiers: Dossiers, job_id: str, *, whole: bool = True) -> bool:
    """The same for a job that no runner has, and that none can get meanwhile."""
    dossier = dossiers.read(job_id)
    free = taken_back(machine, dossier, whole=whole)
    if dossier.deliveries:
        dossiers.write(job_id, dossier)
    return free


def check_there(machine: Path) -> None:
    """A machine without its inbox is away: making one would only hide that."""
    if not (machine / INBOX).is_dir():
        raise FolderAway(
            f"{machine} cannot be used: there is no {INBOX} in it",
            details={"place": str(machine), "reason": f"no {INBOX}"},
        )


def _taken(machine: Path, dossier: Dossier) -> dict[str, Parcel]:
    """What the machine has of the last try, by batch; everything else of it is taken back."""
    if not dossier.deliveries:
        return {}
    last = dossier.deliveries[-1]
    had = withdraw(machine, _delivery(last), whole=False)
    if last["state"] == OPEN:
        last["state"] = WITHDRAWN
    names = had.files if isinstance(had, Taken) else ()
    return {
        _batch(dossier, one.source.name): one for one in _delivery(last).files if one.name in names
    }


def _delivery(one: Mapping[str, Any]) -> Delivery:
    return Delivery.of_json(one["delivery"])


def _batch(dossier: Dossier, name: str) -> str:
    """The batch that an XML is for."""
    fitting = [stem for stem in dossier.stems if name.lower().startswith(stem.lower())]
    return max(fitting, key=len, default=_FOR_ALL)


def _check_unchanged(parcels: tuple[Parcel, ...], dossier: Dossier) -> None:
    """What is sent is what was checked."""
    told = (one["sha256"] for one in dossier.summary.get("files", ()))
    checked = dict(zip(dossier.xml, told, strict=True))
    changed = [one.source.name for one in parcels if one.sha256 != checked[one.source.name]]
    if changed:
        raise OrderProblem(
            OptiCode.OPTI_RUNNER_FAILED,
            f"{', '.join(changed)} was changed after it was checked: retry",
            {"files": changed},
        )
