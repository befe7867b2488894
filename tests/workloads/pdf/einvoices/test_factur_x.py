"""Factur-X from the variables of an invoice: right by the standard, or refused with its rule."""

import copy
from typing import Any

import pytest
from facturx import xml_check_xsd

from kesin.foundation.problems import Invalid, Unavailable
from kesin.workloads.pdf.einvoices import attach
from kesin.workloads.pdf.einvoices.attach import make_factur_x
from tests.workloads.pdf.press import BOOK

INVOICE = BOOK.get("invoice")
SAMPLES = {lang: INVOICE.sample_in(lang) for lang in ("tr", "en")}
ENGLISH = SAMPLES["en"]


def changed(**changes: Any) -> dict[str, Any]:
    """The sample with changes by path, such as lines__2__unit; None leaves a variable out."""
    variables = copy.deepcopy(ENGLISH)
    for path, value in changes.items():
        *steps, last = path.split("__")
        part: Any = variables
        for step in steps:
            part = part[int(step) if step.isdigit() else step]
        if value is None:
            del part[last]
        else:
            part[last] = value
    return variables


def refusal(variables: dict[str, Any]) -> Invalid:
    with pytest.raises(Invalid) as caught:
        make_factur_x(variables)
    return caught.value


@pytest.mark.parametrize(
    "variables",
    [
        *SAMPLES.values(),
        changed(delivered_on="2026-11-01", currency="EUR"),
        changed(lines__0__quantity=-300, due_on=None, notes=None, banks=None),
        changed(lines__0__unit_price="0.123456", lines__0__vat_percent=7.7, currency="JPY"),
        changed(lines__0__unit=None, seller__address="one\ntwo\nthree\nfour", seller__name="<&>"),
        changed(seller__address="", buyer__tax_number="12345"),
    ],
    ids=["tr", "en", "delivered", "negative", "prices", "texts", "short"],
)
def test_an_invoice_passes_the_rules_and_the_schema_of_the_standard(variables):
    xml = make_factur_x(variables)
    assert xml_check_xsd(xml, flavor="factur-x", level="en16931")
    assert make_factur_x(variables) == xml


def test_what_the_page_shows_is_in_the_xml():
    xml = make_factur_x(changed(seller__name="A & B <c>")).decode()
    for part in (
        "<ram:Name>A &amp; B &lt;c&gt;</ram:Name>",
        '<ram:ID schemeID="VA">GB123456789</ram:ID>',
        "<ram:IBANID>GB82WEST12345698765432</ram:IBANID>",
        '<udt:DateTimeString format="102">20261215</udt:DateTimeString>',
        '<ram:BilledQuantity unitCode="MTR">186.4</ram:BilledQuantity>',
        "<ram:ActualAmount>6.42</ram:ActualAmount>",
        '<ram:TaxTotalAmount currencyID="EUR">',
    ):
        assert part in xml


def test_a_broken_rule_is_refused_with_its_code_at_the_variable():
    for changes, code, field in (
        ({"stated_total": 1}, "BR-CO-15", "variables/stated_total"),
        ({"due_on": None}, "BR-CO-25", "variables/due_on"),
        ({"seller__country": None}, "BR-09", "variables/seller/country"),
        ({"buyer__country": None}, "BR-11", "variables/buyer/country"),
        ({"seller__tax_number": None}, "BR-CO-26", "variables/seller/tax_number"),
        ({"buyer__tax_number": "XX12"}, "BR-CO-09", "variables/buyer/tax_number"),
        ({"lines__2__unit_price": -3}, "BR-27", "variables/lines/2/unit_price"),
        ({"lines__2__unit": "elbow"}, "BR-23", "variables/lines/2/unit_code"),
        ({"lines__2__unit_code": "ZZZ"}, "FX-SCH-A-000613", "variables/lines/2/unit_code"),
        ({"currency": "ABC"}, "FX-SCH-A-000595", "variables/currency"),
        ({"seller__country": "XX"}, "FX-SCH-A-000580", "variables/seller/country"),
        ({"number": None}, "EINVOICE_INVALID", "variables/number"),
        ({"colour": "red"}, "EINVOICE_INVALID", "variables/colour"),
        ({"number": "a\x0bb"}, "EINVOICE_INVALID", "einvoice"),
    ):
        problem = refusal(changed(**changes))
        assert (problem.status, problem.code) == (422, code), changes
        assert problem.details["fields"][0]["field"] == field, changes
        assert problem.message.startswith(f"{field} "), changes


def test_a_checker_that_is_killed_is_replaced():
    make_factur_x(ENGLISH)
    [child] = attach._kept
    child.process.kill()
    child.process.wait()
    make_factur_x(ENGLISH)
    assert attach._kept != [child]


def test_an_invoice_that_takes_too_long_ends_its_process(monkeypatch):
    monkeypatch.setattr(attach, "LIMIT_S", 0)
    with pytest.raises(Unavailable, match="within 0 s"):
        make_factur_x(ENGLISH)
    assert attach._kept == []


def test_without_the_extra_it_names_what_to_install(monkeypatch):
    monkeypatch.setattr(attach, "find_spec", lambda _: None)
    problem = refusal(ENGLISH)
    assert problem.code == "EINVOICE_UNAVAILABLE"
    assert "pip install 'kesin[einvoice]'" in problem.message


@pytest.mark.long
def test_the_largest_invoice_is_checked_within_the_limits():
    assert len(make_factur_x({**ENGLISH, "lines": ENGLISH["lines"][:1] * 2_000})) > 1_000_000
