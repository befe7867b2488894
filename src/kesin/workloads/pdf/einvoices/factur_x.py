"""Makes Factur-X from the variables of an invoice, and checks it in a process with limits."""

import atexit
import json
import re
import sys
import threading
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined

from kesin.foundation.clock import SystemClock
from kesin.foundation.extras import LIBRARIES, install_command
from kesin.foundation.messages import Message
from kesin.foundation.problems import Invalid, Unavailable
from kesin.workloads.pdf.channel import Child, ChildChannel
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.einvoices.rules_child import LIMIT_S
from kesin.workloads.pdf.errors import invalid_fields
from kesin.workloads.pdf.templating.filters import parse_amount, round_half_up
from kesin.workloads.pdf.templating.totals import invoice_sums
from kesin.workloads.pdf.templating.variables import VariableSchema

CHILD_MODULE: Final = "kesin.workloads.pdf.einvoices.rules_child"
TABLES: Final = tomllib.loads(Path(__file__).with_name("factur_x.toml").read_text("utf-8"))
# The shipped invoice, whatever template of its name is in use.
_SCHEMA: Final = VariableSchema(json.loads((SHIPPED / "invoice/schema.json").read_text("utf-8")))
_XML: Final = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
    Path(__file__).with_name("factur_x.xml").read_text("utf-8"),
    {"decimal": lambda number: f"{parse_amount(number):f}"},
)
_UNIT_CODES: Final = {word: code for code, words in TABLES["units"].items() for word in words}
_LINE: Final = re.compile(r"IncludedSupplyChainTradeLineItem\[(\d+)\]")
_one_at_a_time: Final = threading.Lock()
_kept: Final[list[Child]] = []  # the child that waits for the next invoice, if any
atexit.register(lambda: [*map(Child.kill, _kept)])


def make_factur_x(variables: Mapping[str, Any]) -> bytes:
    """Return the XML of an invoice; raises Invalid with each rule that it breaks, and where."""
    if not all(map(find_spec, LIBRARIES["einvoice"])):
        why = "to create e-invoices from variables, install an extra: %(command)s"
        raise Invalid(why, code="EINVOICE_UNAVAILABLE", command=install_command("einvoice"))
    if wrong := _SCHEMA.find_problems(variables):
        raise invalid(*((f"variables{each.path}", each.message, each.rule) for each in wrong))
    lines, sums = variables["lines"], invoice_sums(variables["lines"])
    units = [(each.get("unit_code"), each.get("unit", "").strip().lower()) for each in lines]
    codes = [code or _UNIT_CODES.get(unit) for code, unit in units]
    missing = Message("is missing; an e-invoice needs it")
    if None in codes:  # a code for any unit would be a guess
        raise invalid((f"variables/lines/{codes.index(None)}/unit_code", missing, "BR-23"))
    if sums.total > 0 and "due_on" not in variables:  # the library does not check this rule
        raise invalid(("variables/due_on", missing, "BR-CO-25"))
    total, money = variables.get("stated_total", sums.total), variables.get("currency", "TRY")
    values = {"sums": sums, "codes": codes, "total": round_half_up(total), "money": money}
    xml = _XML.render(variables, **values).encode()
    if broken := _find_broken(xml):
        raise invalid(*(_describe(**each) for each in broken))
    return xml


def _find_broken(xml: bytes) -> list[dict[str, str]]:
    """Ask the child, which stays: to compile the rules takes longer than to check by them."""
    with _one_at_a_time:
        child = _kept.pop() if _kept else Child(CHILD_MODULE)
        if not child.alive:
            child.kill()
            child = Child(CHILD_MODULE)
        channel, deadline = ChildChannel(child.socket, sys.maxsize), SystemClock().monotonic()
        try:
            channel.send({}, xml, deadline + LIMIT_S)
            reply, _ = channel.receive(deadline + LIMIT_S)
        except (TimeoutError, EOFError, OSError):  # too slow or too large, or it was killed
            child.kill()
            why = "the e-invoice was not checked within %(n)s s: try again"
            raise Unavailable(why, n=LIMIT_S) from None
        _kept[:] = [child]
    return list(reply["broken"])


def _describe(rule: str, text: str, place: str) -> tuple[str, str, str]:
    """Return the field that a broken rule is about, what is wrong, and the rule."""
    element, line = place.rpartition("*:")[2].partition("[")[0], _LINE.search(place)
    path = TABLES["rules"].get(rule) or TABLES["rules"].get(element)
    party = "seller" if "SellerTradeParty" in place else "buyer"
    field = path and path.format(line=int(line[1]) - 1 if line else 0, party=party)
    why = Message("breaks rule %(rule)s: %(text)s", rule=rule, text=text) if rule else text
    return f"variables/{field}" if field else "einvoice", why, rule


def invalid(*problems: tuple[str, str, str]) -> Invalid:
    """Build the problem of some fields; its code is the first rule, if it is one of invoices."""
    rule = problems[0][2]
    code = rule if rule.startswith(("BR-", "FX-")) else "EINVOICE_INVALID"
    return invalid_fields(problems, code=code)
