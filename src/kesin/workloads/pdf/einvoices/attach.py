"""E-invoices and attachments: made, checked, and stored, so that a payload holds only ids."""

import atexit
import json
import re
import threading
import tomllib
from base64 import b64decode
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from xml.parsers import expat

from jinja2 import Environment, StrictUndefined

from kesin.foundation.clock import SystemClock
from kesin.foundation.extras import LIBRARIES, install_command
from kesin.foundation.messages import Message, MessageError
from kesin.foundation.problems import Invalid, TooLarge, Unavailable
from kesin.workloads.pdf.channel import Child
from kesin.workloads.pdf.config import SHIPPED
from kesin.workloads.pdf.einvoices.rules_child import LIMIT_S
from kesin.workloads.pdf.einvoices.schemas import EinvoiceRequest
from kesin.workloads.pdf.errors import RenderFailed, invalid_fields
from kesin.workloads.pdf.limits import MAX_PDF_BYTES
from kesin.workloads.pdf.schemas import PdfJobRequest
from kesin.workloads.pdf.storage.base import StorageError, storage_down
from kesin.workloads.pdf.templating.filters import invoice_sums, parse_amount, round_half_up
from kesin.workloads.pdf.templating.pictures import PictureLimits
from kesin.workloads.pdf.templating.variables import VariableSchema
from kesin.workloads.pdf.uploads.checking import check_file
from kesin.workloads.pdf.uploads.store import PdfUploads

MAX_ATTACHED_BYTES: Final = MAX_PDF_BYTES // 2
_KEPT: Final = {"name", "media_type", "relationship"}


def store_attachments(
    uploads: PdfUploads, pictures: PictureLimits, body: PdfJobRequest, owner: str
) -> list[dict[str, Any]]:
    """Store what a PDF is to carry; return what its job says of each file. Raises Problem."""
    entries = []
    for at, each in enumerate(body.attachments):
        upload = each.upload
        if each.data_base64 is not None:
            file = check_file(b64decode(each.data_base64), each.media_type, pictures)
            upload, _ = uploads.store(owner, file.data, file.kind)
        size = uploads.require(owner, upload or "", f"attachments/{at}/upload")
        entries.append({**each.model_dump(include=_KEPT), "upload": upload, "bytes": size})
    if sum(file["bytes"] for file in entries) > MAX_ATTACHED_BYTES:
        most = MAX_ATTACHED_BYTES // 1024**2
        raise TooLarge("the attachments together exceed %(most)s MiB", most=most)
    if body.einvoice is not None:
        entries.append(_store_invoice(uploads, body.einvoice, body.variables, owner))
    return entries


def _store_invoice(
    uploads: PdfUploads, asked: EinvoiceRequest, variables: dict[str, Any], owner: str
) -> dict[str, Any]:
    field, xml = "einvoice/xml_base64", b64decode(asked.xml_base64 or "")
    if asked.source:
        xml = make_factur_x(variables)
    elif asked.upload:
        field = "einvoice/upload"
        if uploads.require(owner, asked.upload, field) > MAX_XML_BYTES:
            raise invalid((field, "is too large for an e-invoice", "xml"))
        try:
            xml = uploads.read(owner, asked.upload)
        except (RenderFailed, StorageError):  # it went since, or is damaged
            raise storage_down() from None
    try:
        guideline = check_xml(xml, TABLES["roots"].get(asked.format, ()))
    except MessageError as problem:
        raise invalid((field, str(problem), "xml")) from None
    level, shown = TABLES["levels"].get(guideline.rpartition("#")[2], ("", ""))
    if asked.format == "factur-x" and not (level and asked.level in (None, level)):
        why = Message("the level of the XML is %(level)s", level=level or "unknown")
        raise invalid(("einvoice/level", why, "level"))
    # The signed XML of UBL-TR is the original; a level without lines says less than the page.
    special = {"ubl-tr": "Source", "minimum": "Data", "basicwl": "Data"}
    relationship = special.get(asked.format) or special.get(level, "Alternative")
    entry = {"name": asked.file_name, "media_type": "text/xml", "relationship": relationship}
    if asked.format == "factur-x":
        entry["level"] = shown
    return {**entry, "upload": uploads.store(owner, xml, "file")[0], "bytes": len(xml)}


MAX_XML_BYTES: Final = 5 * 1024 * 1024
MAX_XML_DEPTH: Final = 100
_GUIDELINE: Final = ["ExchangedDocumentContext", "GuidelineSpecifiedDocumentContextParameter", "ID"]


def check_xml(data: bytes, roots: Collection[str]) -> str:
    """Return the guideline that an invoice of Factur-X names; ``roots``: expected, or none for any.

    Raises MessageError unless it is well-formed, within limits, and has no DTD: so no entities.
    """
    path, first, guideline = list[str](), "", ""

    def start(name: str, _: object) -> None:
        nonlocal first
        path.append(name.rpartition(" ")[2])
        first = first or path[0]
        if len(path) > MAX_XML_DEPTH:
            raise MessageError("the XML is nested deeper than %(most)s levels", most=MAX_XML_DEPTH)

    def read_text(text: str) -> None:
        nonlocal guideline
        if path[1:] == _GUIDELINE:
            guideline += text.strip()

    def refuse(*_: object) -> None:
        raise MessageError("the XML has a DTD: send it without a DOCTYPE")

    if len(data) > MAX_XML_BYTES:
        raise MessageError("the XML is larger than %(most)s MiB", most=MAX_XML_BYTES // 1024**2)
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = start, lambda _: path.pop()
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = read_text, refuse
    try:
        parser.Parse(data, True)  # noqa: FBT003  # it takes no names
    except MessageError:
        raise
    except (expat.ExpatError, LookupError, ValueError) as problem:  # or an unknown encoding
        raise MessageError("the XML is not well-formed: %(problem)s", problem=problem) from None
    if roots and first not in roots:
        raise MessageError("the XML's root must be %(expected)s", expected=" or ".join(roots))
    return guideline


CHILD_MODULE: Final = "kesin.workloads.pdf.einvoices.rules_child"
TABLES: Final = tomllib.loads(Path(__file__).with_name("factur_x.toml").read_text("utf-8"))
# The shipped invoice, whatever template of its name is in use.
_SCHEMA: Final = VariableSchema(json.loads((SHIPPED / "invoice/schema.json").read_text("utf-8")))
_XML: Final = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
    Path(__file__).with_name("factur_x.xml").read_text("utf-8"), {"decimal": lambda number: f"{parse_amount(number):f}"}
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
        deadline = SystemClock().monotonic() + LIMIT_S
        try:
            child.send({"limit_s": LIMIT_S}, xml, deadline)
            reply, _ = child.receive(deadline)
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
