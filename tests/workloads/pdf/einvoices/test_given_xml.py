"""XML of clients: read without expanding or fetching anything, within limits."""

import pytest

from kesin.workloads.pdf.einvoices.attach import MAX_XML_BYTES, MAX_XML_DEPTH, check_xml

GUIDELINE = "urn:cen.eu:en16931:2017"
CII = (
    '<r:CrossIndustryInvoice xmlns:r="urn:r"><r:ExchangedDocumentContext>'
    "<r:GuidelineSpecifiedDocumentContextParameter><r:ID> {} </r:ID>"
    "</r:GuidelineSpecifiedDocumentContextParameter></r:ExchangedDocumentContext>"
    "<r:ID>another</r:ID></r:CrossIndustryInvoice>"
)
BOMB = (
    '<!DOCTYPE a [<!ENTITY b "bbbbbbbbbb">'
    + "".join(f'<!ENTITY b{n} "{"&b;" * 10}">' for n in range(9))
    + "]><a>&b8;</a>"
)


def test_well_formed_xml_says_what_it_is():
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "iso-8859-9"):
        text = CII.format(GUIDELINE).replace("another", "Işık ğş ç")
        named = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>' + text
        assert check_xml(named.encode(encoding), ["CrossIndustryInvoice"]) == GUIDELINE, encoding
        assert check_xml(named.encode(encoding), []) == GUIDELINE, encoding
        assert check_xml(b"<a/>", []) == "", encoding


def test_xml_that_is_not_accepted_is_refused_with_its_reason(subtests):
    for xml, why in (
        (BOMB, "DTD"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "DTD"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "http://127.0.0.1/x">]><a>&x;</a>', "DTD"),
        ("<!DOCTYPE a><a/>", "DTD"),
        ("", "not well-formed"),
        ("<a>", "not well-formed"),
        ("<a>&x;</a>", "not well-formed"),
        ("<a/><b/>", "not well-formed"),
        ("<x:a/>", "not well-formed"),
        ("<a>\x00</a>", "not well-formed"),
        ("%PDF-1.7", "not well-formed"),
        ('<?xml version="1.0" encoding="nothing"?><a/>', "not well-formed"),
        ('<?xml version="1.0" encoding="utf-7"?><a/>', "not well-formed"),
        ("<a>" * (MAX_XML_DEPTH + 1), "nested deeper"),
        (f"<a>{' ' * MAX_XML_BYTES}</a>", "larger than 5 MiB"),
        ("<b/>", "root must be Invoice or CreditNote"),
    ):
        with subtests.test(xml[:40]), pytest.raises(ValueError, match=why):
            check_xml(xml.encode(), ["Invoice", "CreditNote"])


def test_entities_are_refused_in_any_encoding():
    with pytest.raises(ValueError, match="DTD"):
        check_xml(BOMB.encode("utf-16"), [])
