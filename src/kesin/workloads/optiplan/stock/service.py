"""What operators do with the rack; repeating it changes nothing."""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal

from kesin.engine.workload import WorkloadContext
from kesin.foundation.permissions import Actor
from kesin.foundation.problems import Unavailable
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.payload import StrictModel, validate_model
from kesin.workloads.optiplan.service import QUEUE
from kesin.workloads.optiplan.stock import offcut as offcuts
from kesin.workloads.optiplan.stock.offcut import Offcut, OffcutFilter, OffcutState
from kesin.workloads.optiplan.stock.settling import FREED, Settling
from kesin.workloads.optiplan.workshop.config import Workshop

OffcutAction = Literal["resize", "place", "scrap", "lost", "cut", "uncut"]
_NEEDS: Final[Mapping[str, type[StrictModel]]] = {"resize": offcuts.OffcutSize, "place": offcuts.OffcutPlace}


class RackService:
    """Operations on offcuts. It checks permissions and writes the audit log."""

    def __init__(self, context: WorkloadContext) -> None:
        self._commands = context.commands
        self._settling = Settling(Workshop(context.settings), context.queue)
        self._rack = self._settling.rack

    def page(self, actor: Actor, where: OffcutFilter, limit: int) -> tuple[list[Offcut], str | None]:
        """Return a page of offcuts, and the next cursor."""
        self._require_read(actor)
        return self._rack.page(where, limit)

    def get(self, actor: Actor, offcut_id: str) -> Offcut:
        """Return an offcut by its id, however it was typed or scanned."""
        self._require_read(actor)
        return self._rack.get(offcut_id.strip().upper())

    def add(self, actor: Actor, given: offcuts.OffcutGiven) -> Offcut:
        """Add an offcut that was found, unless its made_key is known; returns it."""
        self._commands.queue(actor, QUEUE, "operate", "rack")
        made_key, now = f"found/{given.made_key or secrets.token_hex(16)}", self._rack.queue.now()
        new = {"id": offcuts.offcut_id(made_key), "created_at": now, "changed_at": now}
        offcut = Offcut(**{**dict(given), **new, "made_key": made_key})
        with self._rack.directory.transaction():
            self._rack.add(offcut)
            offcut = self._rack.get(offcut.id)
            self._note(actor, "add", offcut)
        return offcut

    def act(self, actor: Actor, offcut_id: str, action: OffcutAction, given: Mapping[str, Any]) -> Offcut:
        """Take an action; ``given`` has the size or place that it needs, and nothing else."""
        self._commands.queue(actor, QUEUE, "operate", "rack")
        values = dict(validate_model(_NEEDS.get(action, StrictModel), dict(given)))
        offcut = self.get(actor, offcut_id)
        if action == "uncut" and offcut.reserved_by_job:
            with suppress(Unavailable):
                self._settling.settle(offcut.reserved_by_job)
        with self._rack.directory.transaction():
            locked, offcut = self._rack.lock_all([offcut.id]), self._rack.get(offcut.id)
            [stored] = locked or [offcut]  # used and scrapped ones never change
            if changes := _changes(action, values, stored, offcut.state):
                self._rack.update(stored, **changes)
                offcut = self._rack.get(offcut.id)
            self._note(actor, action, offcut)
        return offcut

    def _note(self, actor: Actor, action: str, offcut: Offcut) -> None:
        note, details = self._commands.accounts.note, offcut.model_dump(mode="json")
        note(actor, f"optiplan.rack_{action}", queue=QUEUE, target=offcut.id, details=details)

    def _require_read(self, actor: Actor) -> None:
        if not actor.has("optiplan"):
            self._commands.queue(actor, QUEUE, "read", "read")


def _changes(action: OffcutAction, values: Mapping[str, Any], stored: Offcut, state: OffcutState) -> Mapping[str, Any]:
    """Return what an action changes in an offcut that reads as in this state."""
    result = {"scrap": "SCRAPPED", "lost": "SCRAPPED", "cut": "USED", "uncut": "FREE"}.get(action)
    if state == result:
        return {}
    match action, state:
        case "resize", "FREE" | "IN_DOUBT":
            share = values["length_mm"] * values["width_mm"] / stored.area
            return {**values, "price": (stored.price * share).quantize(offcuts.CENT)}
        case "place", "FREE" | "IN_DOUBT" | "RESERVED":
            return values
        case (("scrap" | "lost"), ("FREE" | "IN_DOUBT")):
            return {"state": result}
        case "cut", "IN_DOUBT":
            return {"state": result, "used_by_job": stored.reserved_by_job}
        case "uncut", "IN_DOUBT" if stored.state != "RESERVED":
            return FREED
    job = stored.reserved_by_job
    why, names = "offcut %(offcut)s is %(state)s", {"offcut": stored.id, "state": state}
    if state == "RESERVED":
        why = "offcut %(offcut)s is %(state)s: wait until its order is done, or cancel the order"
    elif (action, state) == ("uncut", "IN_DOUBT"):
        why = "the saw may still cut offcut %(offcut)s: retry or reissue job %(job)s first"
        names = {"offcut": stored.id, "job": job or ""}
    raise OrderProblem(OptiCode.OFFCUT_STATE, why, {"state": state, "job_id": job}, **names)
