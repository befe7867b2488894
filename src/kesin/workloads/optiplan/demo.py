"""Cutting orders of the demonstration. Everything is real but the saw, which is the simulator's."""

from __future__ import annotations

import os
import random
import threading
from contextlib import suppress
from itertools import count
from typing import Any, Final

from kesin.cli.demo.common import News
from kesin.foundation.problems import Problem
from kesin.foundation.settings import load_settings
from kesin.workloads.oci.cli.script_simulator import over_http

QUEUE: Final = "optiplan"
SAW_EVERY_S: Final = 0.5
CUT: Final = "files cut"
CUSTOMERS: Final = {"0555 123 45 67": "Demir Mobilya", "0532 987 65 43": "Güneş Ahşap"}
STRANGER: Final = ("0544 222 33 44", "Yıldız Dekorasyon")
_MADE: Final = (200, 201)


def what_is_missing() -> str:
    """Why no order can be cut here; '' if one can."""
    try:
        from kesin.workloads.optiplan import artifacts  # noqa: F401
        from kesin.workloads.optiplan.pipeline import runner  # noqa: F401  # whether they are
    except ImportError as problem:
        return f"no cutting orders: {problem.name} is missing (pip install 'kesin[optiplan]')"
    if not hasattr(os, "pidfd_open"):
        return "no cutting orders: the optimiser is started on Linux only"
    return ""


def end_optimiser() -> None:
    """Whoever stops a service lets the optimiser finish; here its folder goes away."""
    from kesin.workloads.optiplan.pipeline.program import end_earlier
    from kesin.workloads.optiplan.workshop.config import Workshop

    with suppress(Problem):
        end_earlier(Workshop(load_settings()).run_folder)


class Orders:
    """The shop's program, which brings orders of known customers, and one of a stranger."""

    def __init__(self, address: str, key: str, news: News, chance: random.Random) -> None:
        self._send = over_http(address, key)
        self._news = news
        self._chance = chance
        self._numbers = count(1001)
        for phone, name in CUSTOMERS.items():
            self._ask("/customers", {"name": name, "phone": phone})

    def bring(self) -> str:
        """The next order of somebody known; the job's id."""
        phone = self._chance.choice([*CUSTOMERS])
        return self._order(phone, CUSTOMERS[phone])

    def bring_from_stranger(self) -> str:
        """One that is held until a person has decided."""
        return self._order(*STRANGER)

    def _order(self, phone: str, name: str) -> str:
        order = f"A-{next(self._numbers)}"
        told = {"customer_phone": phone, "customer_snapshot_name": name}
        body = self._ask("/jobs", {"order_id": order, **told, "parts": _wardrobe(self._chance)})
        return str(body["job"]["id"])

    def _ask(self, path: str, told: dict[str, Any]) -> dict[str, Any]:
        heard = self._send("POST", path, told)
        if heard.status not in _MADE or not isinstance(heard.body, dict):
            raise Problem(f"{path} was answered with {heard.status}")
        return heard.body

    def cut(self, stop: threading.Event) -> None:
        """Be the saw."""
        from kesin.workloads.optiplan.pipeline.saw_simulator import Saw
        from kesin.workloads.optiplan.workshop.config import Workshop

        folder = Workshop(load_settings()).paths().machine_drop_folder
        Saw(folder).run(stop, SAW_EVERY_S, took=self._took)

    def _took(self, files: int) -> None:
        self._news.count(CUT, files)
        self._news.tell(f"the saw took {files} cutting {'plan' if files == 1 else 'plans'}")


def _wardrobe(chance: random.Random) -> list[dict[str, Any]]:
    """Some pieces of one, sizes in centimetres; every wardrobe is a little different."""
    body = {"part_type": "GOVDE", "color": "Açık Meşe", "material_code": "18MM 210*280"}
    thick, thin = {**body, "thickness_mm": 18}, {**body, "thickness_mm": 8}
    high, wide = chance.randrange(180, 208), chance.randrange(40, 60)
    back = {"part_type": "ARKALIK", "material_code": "8MM 210*280", "grain": 0}
    return [
        _part(thick, "side", high, wide, 2, grain=1, edge_up="1mm"),
        _part(thick, "shelf", 86.4, wide - 2.5, chance.randrange(3, 7), grain=0),
        _part(thick, "door", high - 3.5, 44.7, 2, grain=1, edge_dx="2mm"),
        _part({**thin, **back}, "back", high - 1, 89, 1),
    ]


def _part(
    body: dict[str, Any], name: str, length: float, width: float, quantity: int, **more: Any
) -> dict[str, Any]:
    sizes = {"length_cm": length, "width_cm": width, "quantity": quantity}
    return {**body, "id": name, **sizes, **more}
