"""Generated pages are up to date, and tables written by hand list everything that the code has."""

import re
import typing
from dataclasses import fields
from difflib import unified_diff

from kesin.lifecycle.declare import Move
from kesin.lifecycle.proof.rules import RULES
from kesin.lifecycle.vocabulary import GuardKind
from scripts.reference import limits_page, pages, unlisted
from tests.docs.pages import DOCS, ROOT

# A line of each page, so that an empty page is not up to date.
SAMPLES = {
    "src/kesin/cli/help.txt": "Usage: kesin [OPTIONS] COMMAND [ARGS]...",
    "docs/reference/cli.md": "## kesin oci import\n",
    "docs/reference/http.md": "### POST /api/queues/{queue}/actions\n",
    "docs/reference/python.md": "### RunContext\n",
    "docs/reference/settings.md": "| `KESIN_PDF_PROCESSES` | `1` |",
    "docs/reference/errors.md": "### E_OSI_ACK_TIMEOUT\n",
    "docs/tr/hatalar.md": "- **Türü:** PERMANENT; başarısız kalır.\n",
    "docs/limits.md": "| response from a receiver | 10 s | `workloads.pdf.",
    "scripts/google-ads-oci/ManagerScript.js": "executeInParallel('serveAccount', 'allServed'",
    "README.md": "| `make chaos ARGS=--write` |\n",
}
STATES = (DOCS / "states.md").read_text("utf-8")


def test_the_generated_pages_are_up_to_date():
    generated = pages()
    assert {name for name, line in SAMPLES.items() if line in generated[name]} == set(generated)
    stale = "".join(
        "\n".join(unified_diff((ROOT / name).read_text("utf-8").splitlines(), text.splitlines(), name))
        for name, text in generated.items()
    )
    assert stale == "", f"run python scripts/make-reference.py\n{stale}"


def test_a_limit_is_shown_with_its_value_unit_and_place():
    row = "| payload, as JSON in UTF-8 | 256 KiB | `engine.queue:Queue(max_payload_bytes)` |\n"
    assert row in limits_page()


def test_every_limit_of_lifecycle_store_and_engine_is_on_the_page_of_limits():
    assert unlisted() == set(), "add them to scripts/reference/limits.md"


def test_every_guard_has_a_row():
    rows = "\n".join(line for line in STATES.splitlines() if line.startswith("|"))
    guards = typing.get_args(GuardKind)
    assert [guard for guard in guards if not re.search(rf"`{guard}(\(.*?\))?`", rows)] == []


def test_every_part_of_a_move_is_explained():
    in_prose = {"name": "named edge", "sources": "sources", "to": "target", "by": "who may make it"}
    parts = {field.name for field in fields(Move)} - {"chained", "doc"}
    assert {part for part in parts if in_prose.get(part, f"`{part}`") not in STATES} == set()


def test_every_rule_of_the_proof_is_a_heading():
    page = " ".join(STATES.split())
    headings = {f"## {rule} {text[0].upper()}{text[1:]}." for rule, text in RULES.items()}
    assert {heading for heading in headings if heading not in page} == set()
