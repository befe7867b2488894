"""The generated pages against the code they are made from."""

from scripts.reference import pages
from tests.docs.pages import ROOT

SOUGHT = {
    "docs/reference/cli.md": "## kesin oci import\n",
    "docs/reference/http.md": "### POST /api/queues/{queue}/actions\n",
    "docs/reference/settings.md": "| `KESIN_PDF_PROCESSES` | `1` |",
    "docs/reference/errors.md": "### E_OSI_ACK_TIMEOUT\n",
    "docs/tr/hatalar.md": "- **Türü:** PERMANENT, durur, bekler.\n",
    "README.md": "| `make chaos ARGS=--write` |\n",
}


def test_the_pages_are_what_the_code_says():
    made = pages()
    assert {name for name, told in SOUGHT.items() if told in made[name]} == set(made)
    stale = [name for name, text in made.items() if (ROOT / name).read_text("utf-8") != text]
    assert stale == [], "run python scripts/make-reference.py"
