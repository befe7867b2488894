"""Checks of an order's customer, plate and template, in this order: the first failure decides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from kesin.foundation.messages import Message
from kesin.workloads.optiplan.customers import Customer, normalise_phone
from kesin.workloads.optiplan.errors import OptiCode, OrderProblem
from kesin.workloads.optiplan.orders.list_cells import read_heading
from kesin.workloads.optiplan.orders.numbers import format_number
from kesin.workloads.optiplan.orders.payload import FieldProblem, OrderPart, Payload
from kesin.workloads.optiplan.pipeline.transform import EDGES
from kesin.workloads.optiplan.pipeline.xlsx_template import read_template
from kesin.workloads.optiplan.workshop.paths import Paths
from kesin.workloads.optiplan.workshop.plan_settings import PlanSettings
from kesin.workloads.optiplan.workshop.rules import Rules
from kesin.workloads.optiplan.workshop.saw_rules import SawSettings, Size

_MAY_TURN: Final = (0, 3)


def run_prechecks(
    payload: Payload, rules: Rules, paths: Paths, find_customer: Callable[[str], Customer | None]
) -> bytes:
    """Return the checked template; raises OrderProblem for the first failure."""
    phone = normalise_phone(payload.customer_phone)
    if not phone or find_customer(phone) is None:
        details = {"phone_normalized": phone, "order_id": payload.order_id}
        if not phone:
            raise OrderProblem(OptiCode.CRM_NO_MATCH, "the order has no phone number", details)
        why = "no customer has the phone number %(phone)s"
        raise OrderProblem(OptiCode.CRM_NO_MATCH, why, details, phone=phone)
    return check_plates(payload, rules, paths)


def check_plates(payload: Payload, rules: Rules, paths: Paths) -> bytes:
    """Return the checked template; raises OrderProblem if a part has no board, or for the template."""
    settings = PlanSettings.of_order(rules, payload)
    bought = (settings.boards_of(each.material_code, each.thickness_mm) for each in payload.parts)
    if settings.plate_w_mm is None and not all(bought):
        missing = Message("the order has no board size, and rules.json has no defaultPlateSize")
        raise OrderProblem(OptiCode.PLATE_SIZE_MISSING, missing, {"order_id": payload.order_id})
    return read_template(paths.template)


def find_unmakeable(payload: Payload, rules: Rules, *, own_boards: bool) -> list[FieldProblem]:
    """Find what no pass can make; with ``own_boards``, a material ``18MM 183*366`` is a board.

    The limits of the saw hold for plans of the built-in optimiser, which has no such boards.
    """
    if problem := rules.wrong_choice(payload):
        return [problem]
    settings = PlanSettings.of_order(rules, payload)
    problems = []
    for index, part in enumerate(payload.parts):
        found = _unknown_names(part, rules)
        if not found and (boards := _boards_of(part, settings, own_boards=own_boards)):
            sawn = _SawnPart(part, rules, boards, None if own_boards else settings.saw)
            found = sawn.too_large() or sawn.beyond_saw()
        problems += [FieldProblem(("parts", index, name), why) for name, why in found.items()]
    return problems


def _unknown_names(part: OrderPart, rules: Rules) -> dict[str, Message]:
    bands = ", ".join(rules.edge_mapping)
    found = {
        edge: Message("is not a band in the rules: %(known)s", known=bands)
        for edge in (EDGES if part.part_type == "GOVDE" else ())
        if getattr(part, edge) not in {None, *rules.edge_mapping}
    }
    if rules.materials and part.material_code not in rules.materials:
        why, materials = "is not a material in the rules: %(known)s", ", ".join(rules.materials)
        found["material_code"] = Message(why, known=materials)
    return found


def _boards_of(part: OrderPart, settings: PlanSettings, *, own_boards: bool) -> list[Size]:
    named = read_heading([[part.material_code]]).plate_mm
    bought = settings.boards_of(part.material_code, part.thickness_mm)
    if bought and not own_boards:
        return [(board.length_mm, board.width_mm) for board in bought]
    plates = [named] if named and own_boards else []
    if settings.plate_w_mm is not None and settings.plate_h_mm is not None:
        plates.append((settings.plate_w_mm, settings.plate_h_mm))
    return [(max(plate), min(plate)) for plate in plates]


@dataclass(frozen=True, slots=True)
class _SawnPart:
    """A part without its bands, and the boards it may be cut from; each method names fields."""

    part: OrderPart
    rules: Rules
    boards: Sequence[Size]
    saw: SawSettings | None

    @property
    def sides(self) -> dict[str, Decimal]:
        bands = self.rules.edge_mapping
        up, lo, sx, dx = (bands.get(getattr(self.part, edge)) or Decimal(0) for edge in EDGES)
        length, width = self._finished
        return {"length_cm": length - sx - dx, "width_cm": width - up - lo}

    @property
    def _finished(self) -> Size:
        cm = self.rules.cm_to_mm_multiplier
        return self.part.length_cm * cm, self.part.width_cm * cm

    @property
    def trims(self) -> Size:
        """What the trims take along a board and across it."""
        if self.saw and (own := self.saw.trims):
            return own.left_mm + own.right_mm, own.bottom_mm + own.top_mm
        both = 2 * (self.rules.trim_mm(self.part.thickness_mm) or Decimal(0))
        return both, both

    @property
    def rooms(self) -> list[Size]:
        along, across = self.trims
        return [(length - along, width - across) for length, width in self.boards]

    def too_large(self) -> dict[str, Message]:
        """Say which sides fit none of the boards inside the trims."""
        sides, may_turn = self.sides, self.part.grain in _MAY_TURN
        longest_first = sorted(sides, key=sides.__getitem__, reverse=True)

        def too_large(names: Sequence[str]) -> list[str]:
            """Return which of these, along and across, are too large for the best of the boards."""
            pairs = (zip(names, room, strict=True) for room in self.rooms)
            large = ([name for name, most in pair if sides[name] > most] for pair in pairs)
            return min(large, key=len)

        orders = [longest_first, longest_first[::-1]] if may_turn else [list(sides)]
        fields = min(map(too_large, orders), key=len)
        why = self._message(
            "part %(part)s, %(length)s × %(width)s mm, is larger than its board: %(boards)s, less"
            " %(trims)s mm for trim",
            trims=" × ".join(map(format_number, dict.fromkeys(self.trims))),
        )
        if fields and not (may_turn or too_large(longest_first)):
            turn = "%(problem)s; it would fit if turned, but its grain forbids it"
            why = Message(turn, problem=why)
        return dict.fromkeys(fields, why)

    def beyond_saw(self) -> dict[str, Message]:
        """Say why the saw cannot cut the part from any of the boards."""
        if (saw := self.saw) is None:
            return {}
        sides = self.sides
        name = min(sides, key=sides.__getitem__)
        if sides[name] < saw.smallest_piece_mm:
            why = (
                "part %(part)s is sawn to %(size)s mm, but smallest_piece_mm of the saw %(saw)s is"
                " %(least)s: enlarge the part, or choose another saw_profile"
            )
            size, least = map(format_number, (sides[name], saw.smallest_piece_mm))
            return {name: Message(why, part=self.part.id, size=size, least=least, saw=saw.name)}
        length, width = sides.values()
        ways = [(length, width), (width, length)][: 1 + (self.part.grain in _MAY_TURN)]
        for board, room in zip(self.boards, self.rooms, strict=True):
            if any(saw.can_free(way, board, room) for way in ways):
                return {}
        why = (
            "the saw %(saw)s cannot cut part %(part)s, %(length)s × %(width)s mm, from %(boards)s"
            " within %(limits)s: choose another saw_profile, or another board"
        )
        return {name: self._message(why, saw=saw.name, limits=saw.limits)}

    def _message(self, message: str, **values: str) -> Message:
        length, width = map(format_number, self._finished)
        boards = (f"{format_number(x)} × {format_number(y)} mm" for x, y in self.boards)
        values |= {"part": self.part.id, "length": length, "width": width}
        return Message(message, boards=", ".join(boards), **values)
