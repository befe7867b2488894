"""The part of cutting orders in `kesin demo`. All is real but the saw, which is simulated."""

import os
import random
import threading
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Any, ClassVar, Final

from kesin.foundation.problems import Problem, Unavailable
from kesin.foundation.settings import load_settings
from kesin.foundation.terminal import say
from kesin.workloads.common import demo
from kesin.workloads.common.api_client import over_http

SAW_EVERY_S: Final = 0.5
ORDER_EVERY_S: Final = 40.0
CUSTOMERS: Final = {"0555 123 45 67": "Demir Mobilya", "0532 987 65 43": "Güneş Ahşap"}
STRANGER: Final = ("0544 222 33 44", "Yıldız Dekorasyon")
_CREATED: Final = (200, 201)


class Orders:
    """The shop's program, which sends orders of known customers, and one of a stranger."""

    def __init__(self, address: str, key: str, chance: random.Random) -> None:
        self._send = over_http(address, key)
        self._chance = chance
        self._numbers = count(1001)
        for phone, name in CUSTOMERS.items():
            self._post("/customers", {"name": name, "phone": phone})

    def order(self, customer: tuple[str, str] | None = None) -> str:
        """Send the next order, of a known customer if no phone and name are given; the job's id."""
        phone, name = customer or self._chance.choice([*CUSTOMERS.items()])
        number, parts = f"A-{next(self._numbers)}", _wardrobe(self._chance)
        body = {"order_id": number, "customer_phone": phone, "customer_snapshot_name": name}
        return str(self._post("/jobs", {**body, "parts": parts})["job"]["id"])

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        response = self._send("POST", path, body)
        if response.status not in _CREATED or not isinstance(response.body, dict):
            raise Problem(f"the response to {path} was {response.status}")
        return response.body

    def saw(self, stop: threading.Event) -> None:
        from kesin.workloads.optiplan.pipeline.saw_simulator import SawSimulator
        from kesin.workloads.optiplan.workshop.config import Workshop

        SawSimulator(Workshop(load_settings()).paths().machine_drop_folder).run(stop, SAW_EVERY_S)


class OptiplanDemo(demo.DemoPart):
    """Orders of known customers that go to the saw, and one that is held."""

    title: ClassVar = "cutting orders"
    scopes: ClassVar = ("optiplan",)

    def __init__(self) -> None:
        self._held_job = ""  # of the stranger

    def check_machine(self) -> str:
        try:
            from kesin.workloads.optiplan import artifacts  # noqa: F401
            from kesin.workloads.optiplan.pipeline import runner  # noqa: F401  # only whether
        except ImportError as problem:
            library = f"{problem.name} is missing (pip install 'kesin[optiplan]')"
            raise Unavailable(f"no cutting orders: {library}") from None
        if not hasattr(os, "pidfd_open"):
            raise Unavailable("no cutting orders: the optimiser can be started only on Linux")
        return ""

    def begin(self, context: demo.DemoContext) -> None:
        orders = Orders(context.address, context.shop_key, context.chance)
        self._held_job = orders.order(STRANGER)  # held until an operator decides
        known = 2 if context.goes_on else 1
        for _ in range(known):
            orders.order()
        say(f"  {known + 1} cutting orders, one of them from an unknown customer")
        context.background.run(orders.saw)
        context.background.every(ORDER_EVERY_S if context.goes_on else None, orders.order)

    def tour(self, pages: str) -> Iterable[demo.TourStop]:
        if not self._held_job:
            return
        yield demo.TourStop(
            "A cutting order that is waiting for you",
            f"{pages}/optiplan",
            "Press “Add this customer”, then “Add customer and approve”: the order goes to the saw.",
        )
        yield demo.TourStop(
            "The same order as a job",
            f"{pages}/jobs/{self._held_job}",
            "Its timeline, what happens next, and the cutting plan once the order is approved.",
        )

    def clean_up(self) -> None:
        """End the optimiser, which may outlive a service that stops."""
        from kesin.workloads.optiplan.pipeline.program import end_current
        from kesin.workloads.optiplan.workshop.config import Workshop

        with suppress(Problem):
            end_current(Workshop(load_settings()).run_folder)


def _wardrobe(chance: random.Random) -> list[dict[str, Any]]:
    """Some parts of a wardrobe, sizes in centimetres; each is a little different."""
    body = {"part_type": "GOVDE", "color": "Açık Meşe", "material_code": "18MM 210*280"}
    thick = {**body, "thickness_mm": 18}
    thin = {**body, "thickness_mm": 8, "part_type": "ARKALIK", "material_code": "8MM 210*280"}
    high, wide = chance.randrange(180, 208), chance.randrange(40, 60)
    parts: list[tuple[str, float, float, int, dict[str, Any]]] = [
        ("side", high, wide, 2, {**thick, "grain": 1, "edge_up": "1mm"}),
        ("shelf", 86.4, wide - 2.5, chance.randrange(3, 7), {**thick, "grain": 0}),
        ("door", high - 3.5, 44.7, 2, {**thick, "grain": 1, "edge_dx": "2mm"}),
        ("back", high - 1, 89, 1, {**thin, "grain": 0}),
    ]
    names = ("id", "length_cm", "width_cm", "quantity")
    return [{**more, **dict(zip(names, sizes, strict=True))} for *sizes, more in parts]
