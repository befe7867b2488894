"""The delivery attempts of a job: a file that the machine has taken is never sent again.

A failed attempt leaves files behind: refused, in the inbox, taken by the machine, or cut. The next
attempt withdraws what it can and carries over what the machine has taken, file by file, even if the
new XML differs. So only the last attempt counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.pipeline.delivery import (
    Delivery,
    DeliveryFile,
    plan_delivery,
    withdraw,
)
from kesin.workloads.optiplan.pipeline.progress import OrderProgress, ProgressStore
from kesin.workloads.optiplan.pipeline.shared_folder import FolderUnavailable
from kesin.workloads.optiplan.workshop.paths import INBOX

OPEN, WITHDRAWN, REFUSED = "open", "withdrawn", "refused"
_ALL_BATCHES: Final = ""  # the stem of an XML that is for all batches


def add_attempt(
    machine_folder: Path, export_folder: Path, job_id: str, progress: OrderProgress
) -> None:
    """Plan the next attempt and record it; raises OrderProblem or FolderUnavailable.

    The caller saves the progress before sending any file. May be called again if it was not saved.
    """
    taken = _withdraw_last(machine_folder, progress)
    files = {}
    if _ALL_BATCHES not in taken:
        files = {_batch_stem(progress, name): export_folder / name for name in progress.xml}
    if taken and _ALL_BATCHES in files:
        raise OrderProblem(
            OptiCode.OSI_ACK_FAILED,
            "the machine has part of the order already, and the new XML is for all of it",
            {"files": [file.name for file in taken.values()]},
        )
    number = len(progress.deliveries) + 1
    new_files = [path for batch, path in files.items() if batch not in taken]
    planned_files = plan_delivery(new_files, job_id, number).files if new_files else ()
    _check_unchanged(planned_files, progress)
    delivery = Delivery(number, (*planned_files, *taken.values()))
    progress.deliveries.append({"delivery": delivery.as_json(), "state": OPEN})
    progress.current = number - 1


def withdraw_attempts(
    machine_folder: Path, progress: OrderProgress, *, all_or_nothing: bool = True
) -> bool:
    """Withdraw what is in the inbox; returns False if the machine has taken a file of an attempt.

    Then the attempt's other files stay, unless ``all_or_nothing`` is False. Raises
    FolderUnavailable.
    """
    withdrawn_all = True
    for attempt in progress.deliveries:
        all_stay = all_or_nothing and attempt["state"] != REFUSED
        taken = withdraw(machine_folder, _read_delivery(attempt), all_or_nothing=all_stay)
        if taken and attempt["state"] != REFUSED:
            withdrawn_all = False
        elif attempt["state"] == OPEN:
            attempt["state"] = WITHDRAWN
    return withdrawn_all


def withdraw_job_files(
    machine_folder: Path, progress_store: ProgressStore, job_id: str, *, all_or_nothing: bool = True
) -> bool:
    """Withdraw the files of a job that no runner has claimed or can claim meanwhile."""
    progress = progress_store.read(job_id)
    withdrawn_all = withdraw_attempts(machine_folder, progress, all_or_nothing=all_or_nothing)
    if progress.deliveries:
        progress_store.write(job_id, progress)
    return withdrawn_all


def check_inbox_exists(machine_folder: Path) -> None:
    """Raise FolderUnavailable without an inbox: creating one would hide the missing share."""
    if not (machine_folder / INBOX).is_dir():
        raise FolderUnavailable(
            "%(place)s cannot be used: there is no %(folder)s in it",
            details={"place": str(machine_folder), "reason": f"no {INBOX}"},
            place=machine_folder,
            folder=INBOX,
        )


def _withdraw_last(machine_folder: Path, progress: OrderProgress) -> dict[str, DeliveryFile]:
    """Withdraw the last attempt; returns the files that the machine has taken, by batch."""
    if not progress.deliveries:
        return {}
    last = progress.deliveries[-1]
    delivery = _read_delivery(last)
    names = withdraw(machine_folder, delivery, all_or_nothing=False)
    if last["state"] == OPEN:
        last["state"] = WITHDRAWN
    taken = [file for file in delivery.files if file.name in names]
    return {_batch_stem(progress, file.source.name): file for file in taken}


def _read_delivery(attempt: Mapping[str, Any]) -> Delivery:
    return Delivery.from_json(attempt["delivery"])


def _batch_stem(progress: OrderProgress, name: str) -> str:
    """Return the stem of the batch that an XML belongs to."""
    matches = [stem for stem in progress.stems if name.lower().startswith(stem.lower())]
    return max(matches, key=len, default=_ALL_BATCHES)


def _check_unchanged(files: tuple[DeliveryFile, ...], progress: OrderProgress) -> None:
    """Raise OrderProblem if a file differs from the one that was checked."""
    hashes = (file["sha256"] for file in progress.summary.get("files", ()))
    checked = dict(zip(progress.xml, hashes, strict=True))
    changed = [file.source.name for file in files if file.sha256 != checked[file.source.name]]
    if changed:
        why, names = "%(files)s was changed after it was checked: retry", ", ".join(changed)
        raise OrderProblem(OptiCode.OPTI_RUNNER_FAILED, why, {"files": changed}, files=names)
