"""The pages about PDFs and cutting orders agree with the code: filters, codes, rules, pictures."""

import re
from inspect import signature
from typing import Any

from PIL import Image

from kesin.workloads.optiplan.errors import OptiCode
from kesin.workloads.optiplan.files import KEEP_FILES_DAYS
from kesin.workloads.optiplan.workshop.rules import default_rules, rules_json
from kesin.workloads.pdf.storage import open_storage
from kesin.workloads.pdf.templating.filters import FILTERS, TEMPLATE_FUNCTIONS
from kesin.workloads.pdf.templating.library import TemplateLibrary
from kesin.workloads.pdf.templating.sandbox import Sandbox
from kesin.workloads.pdf.webhooks.worker import derive_secret, signature_headers
from tests.docs.pages import DOCS, PAGES, blocks, links, matches
from tests.workloads.pdf.engines.test_archive import TEMPLATES

PDF = DOCS / "pdf.md"
PDF_TEXT = PDF.read_text("utf-8")
PICTURES = DOCS / "pictures"
OTHER_PICTURES = ("optiplan-", "dashboard-", "diagram-")
LARGEST_BYTES = 100_000  # of a picture: six take less than 600 kB
API = (DOCS / "optiplan.md").read_text("utf-8")
OPERATIONS = (DOCS / "optiplan-operations.md").read_text("utf-8")


def test_every_filter_of_templates_is_shown_with_its_output():
    (block,) = [block for block in blocks(PDF) if block.language == "jinja"]
    lines = [re.split(r" {2,}", line, maxsplit=1) for line in block.text.splitlines()]
    assert {name for source, _ in lines for name in re.findall(r"\| (\w+)", source)[:1]} == set(FILTERS)
    for source, shown in lines:
        printed = Sandbox({"line": source}).render("line", {}).replace("\u00a0", " ")
        assert matches(shown, printed), f"{source} prints {printed}"


def test_every_function_of_totals_is_listed_with_its_arguments():
    section = PDF_TEXT.partition("### Totals")[2].partition("\n### ")[0]
    listed = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", section, re.MULTILINE))
    assert listed == {name: ", ".join(signature(function).parameters) for name, function in TEMPLATE_FUNCTIONS.items()}


def test_every_template_has_a_picture_on_the_page_and_no_picture_is_left_over():
    """One in each language that has a sample."""
    library = TemplateLibrary.load()
    names = {name for name in library.names if f"`{name}`" in PDF_TEXT}
    assert names == set(library.names)
    names |= {f"{name}-en" for name in names if "sample.en.json" in library.get(name).samples}
    shown = {path.stem for path in PICTURES.iterdir() if not path.name.startswith(OTHER_PICTURES)}
    assert shown == names
    for name in names:
        path = PICTURES / f"{name}.png"
        assert f"pictures/{name}.png" in links(PDF)
        assert path.stat().st_size < LARGEST_BYTES
        with Image.open(path) as picture:
            assert (picture.format, picture.width) == ("PNG", 700)


def test_the_verdicts_of_the_validator_are_about_every_template():
    """What the tests of archives print: `TEMPLATES` there."""
    section = PDF_TEXT.partition("### Validation")[2]
    verdicts = re.findall(r"^\| `(\w+)`((?: \| passes)+) \|$", section, re.MULTILINE)
    assert {name for name, _ in verdicts} == set(TemplateLibrary.load().names) == {*TEMPLATES}
    assert {text.count("passes") for _, text in verdicts} == {5}


def test_the_addresses_of_storages_open_a_storage():
    rows = re.findall(r"^\| (`(?:artifacts|s3:).*?) \| ", PDF_TEXT, re.MULTILINE)
    addresses = [text for row in rows for text in re.findall(r"`(\S+)`", row) if "s3://" in text]
    assert len(addresses) == 2
    for address in addresses:
        assert repr(open_storage(address)).startswith("S3Storage('s3://kesin-pdfs")


def test_the_receiver_on_the_page_accepts_our_webhooks_and_refuses_others():
    (block,) = [block for block in blocks(DOCS / "pdf-api.md") if block.language == "python"]
    names: dict[str, Any] = {}
    exec(block.text, names)
    is_ours = names["is_ours"]
    body = b'{"type":"pdf.job.succeeded"}'
    secret, other = (derive_secret(f"master secret {n}", "key:shop") for n in (1, 2))
    headers = signature_headers(secret, "msg-1", 1_000, body)
    assert is_ours(secret, headers, body, now=1_100)
    assert not is_ours(secret, headers, body + b" ", now=1_000)
    for at, fits in ((699, False), (700, True), (1_300, True), (1_301, False)):
        assert is_ours(secret, headers, body, now=at) is fits
    both = f"v1,AAAA {headers['webhook-signature']}"  # while a secret is being replaced
    assert is_ours(secret, headers | {"webhook-signature": both}, body, now=1_000)
    for name, value in (("webhook-id", "msg-2"), ("webhook-timestamp", "1001")):
        assert not is_ours(secret, headers | {name: value}, body, now=1_000)
    assert not is_ours(other, headers, body, now=1_000)


def test_every_code_that_stops_an_order_has_advice_and_every_rule_of_the_workshop_is_explained():
    assert f"| {KEEP_FILES_DAYS} days |" in OPERATIONS
    section = OPERATIONS.partition("## Rules")[2].partition("\n## ")[0]
    assert set(rules_json(default_rules())) <= set(re.findall(r"`(\w+)`", section))
    explained = {OptiCode(code) for code in re.findall(r"`(E_[A-Z_]+)`", OPERATIONS + API)}
    of_access = {"UNAUTHORIZED", "FORBIDDEN", "INVALID_CREDENTIALS", "TOKEN_REQUIRED"}
    assert {code.name for code in set(OptiCode) - explained} == {*of_access, "UNKNOWN"}


def test_no_page_shows_a_key_or_a_secret():
    texts = {page.name: page.read_text("utf-8") for page in PAGES}
    assert not [name for name, text in texts.items() if re.search("kesin_session_|GOCSPX-", text)]
