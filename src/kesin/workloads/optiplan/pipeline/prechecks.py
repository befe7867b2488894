"""Checks of an order's customer, plate and template, in this order: the first failure decides."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from kesin.foundation.messages import Message
from kesin.workloads.optiplan.customers import Customer, normalise_phone
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.list_cells import read_heading
from kesin.workloads.optiplan.orders.numbers import format_number
from kesin.workloads.optiplan.orders.payload import FieldProblem, OrderPart, Payload, PlateSize
from kesin.workloads.optiplan.pipeline.transform import EDGES
from kesin.workloads.optiplan.pipeline.xlsx_template import read_template
from kesin.workloads.optiplan.workshop.paths import Paths
from kesin.workloads.optiplan.workshop.rules import Rules

_MAY_TURN: Final = (0, 3)


def run_prechecks(
    payload: Payload, rules: Rules, paths: Paths, find_customer: Callable[[str], Customer | None]
) -> tuple[PlateSize, bytes]:
    """Return the plate and the checked template; raises OrderProblem for the first failure."""
    phone = normalise_phone(payload.customer_phone)
    if not phone or find_customer(phone) is None:
        details = {"phone_normalized": phone, "order_id": payload.order_id}
        if not phone:
            raise OrderProblem(OptiCode.CRM_NO_MATCH, "the order has no phone number", details)
        why = "no customer has the phone number %(phone)s"
        raise OrderProblem(OptiCode.CRM_NO_MATCH, why, details, phone=phone)
    if (plate := payload.plate_size or rules.default_plate_size) is None:
        missing = Message("the order has no board size, and rules.json has no defaultPlateSize")
        raise OrderProblem(OptiCode.PLATE_SIZE_MISSING, missing, {"order_id": payload.order_id})
    return plate, read_template(paths.template)


def find_unmakeable(payload: Payload, rules: Rules, *, own_boards: bool) -> list[FieldProblem]:
    """Find what no pass can make; with ``own_boards``, a material ``18MM 183*366`` is a board."""
    plate = payload.plate_size or rules.default_plate_size
    problems = []
    for index, part in enumerate(payload.parts):
        boards = [] if plate is None else [(plate.width_mm, plate.height_mm)]
        if own_boards and (named := read_heading([[part.material_code]]).plate_mm):
            boards.append(named)
        bands = ", ".join(rules.edge_mapping)
        found = {
            edge: Message("is not a band in the rules: %(known)s", known=bands)
            for edge in (EDGES if part.part_type == "GOVDE" else ())
            if getattr(part, edge) not in {None, *rules.edge_mapping}
        }
        if rules.materials and part.material_code not in rules.materials:
            why, materials = "is not a material in the rules: %(known)s", ", ".join(rules.materials)
            found["material_code"] = Message(why, known=materials)
        if boards and not found:
            found = _too_large(part, boards, rules)
        problems += [FieldProblem(("parts", index, name), why) for name, why in found.items()]
    return problems


def _too_large(
    part: OrderPart, boards: Sequence[tuple[Decimal, Decimal]], rules: Rules
) -> dict[str, Message]:
    """Say which sides of a part, cut without its bands, fit none of the boards inside the trims."""
    trims = 2 * (rules.trim_mm(part.thickness_mm) or Decimal(0))
    length, width = (side * rules.cm_to_mm_multiplier for side in (part.length_cm, part.width_cm))
    up, lo, sx, dx = (rules.edge_mapping.get(getattr(part, edge)) or Decimal(0) for edge in EDGES)
    sides = {"length_cm": length - sx - dx, "width_cm": width - up - lo}
    longest_first = sorted(sides, key=sides.__getitem__, reverse=True)
    rooms = [[side - trims for side in sorted(board, reverse=True)] for board in boards]

    def too_large(names: Sequence[str]) -> list[str]:
        """Return which of these, along and across, are too large for the best of the boards."""
        pairs = (zip(names, room, strict=True) for room in rooms)
        return min(([name for name, most in pair if sides[name] > most] for pair in pairs), key=len)

    fields = too_large(longest_first if part.grain in _MAY_TURN else list(sides))
    why = Message(
        "part %(part)s, %(length)s × %(width)s mm, is larger than its board: %(boards)s, less"
        " %(trims)s mm for trim",
        part=part.id,
        length=format_number(length),
        width=format_number(width),
        boards=", ".join(f"{format_number(w)} × {format_number(h)} mm" for w, h in boards),
        trims=format_number(trims),
    )
    if fields and not too_large(longest_first):
        why = Message("%(problem)s; it would fit if turned, but its grain forbids it", problem=why)
    return dict.fromkeys(fields, why)
