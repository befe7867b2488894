"""The pages about the API name every path, code and field, and no others."""

import re

from kesin.foundation import problems
from kesin.workloads.pdf.errors import PdfErrorCode
from kesin.workloads.pdf.schemas import PdfJobRequest, PdfRenderOptions
from tests.docs.pages import DOCS, blocks, blocks_of
from tests.docs.shell import URL

API, OPTIPLAN, PDF = ((DOCS / name).read_text("utf-8") for name in ("api.md", "optiplan.md", "pdf-api.md"))
OF_API = (
    "/api/queues", "/api/jobs", "/api/session", "/api/sites", "/api/cron", "/health", "/metrics",
    "/api/oci",
)  # fmt: skip
OF_OPTIPLAN = ("/jobs", "/orders", "/customers", "/config", "/rack", "/plans")
WITHOUT_EXAMPLE = ("/api/oci/", "/api/cron/oci/")  # the pages about conversions have them
SITES = "oci-sites.md"  # its paths are on the page about sites
# The generated reference has every path; test_reference.py compares it with the app.
PATHS = set(re.findall(r"^### ([A-Z]+) (/\S+)$", (DOCS / "reference/http.md").read_text("utf-8"), re.MULTILINE))
NAMED = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`\s?]*)`", API + (DOCS / SITES).read_text("utf-8")))


def test_the_page_of_the_api_names_every_path_and_no_other():
    assert not NAMED - PATHS
    assert {item for item in PATHS if item[1].startswith(OF_API)} - NAMED == set()


def test_every_path_has_an_example():
    """That the examples succeed is tested beside a running service, in test_followed.py."""
    typed = [*blocks(DOCS / "api.md"), *blocks_of(f"{SITES}#fifty-sites")]
    text = "\n".join(block.text for block in typed if block.language == "sh")
    examples = set()
    for line in text.replace("\\\n", " ").replace("$URL", URL).splitlines():
        if line.startswith("curl "):
            method = re.search(r"-X (\w+)", line)
            (path,) = re.findall(rf'(?<!Origin: ){URL}([^\s"?]*)', line)
            path = path.replace("/queues/pdf", "/queues/{queue}").replace("$ID", "{job_id}")
            path = path.replace("/bursa", "/{site_id}").replace("$KEY_ID", "{key_id}")
            examples.add((method[1] if method else "POST" if "--json" in line else "GET", path))
    assert examples == {item for item in NAMED if not item[1].startswith(WITHOUT_EXAMPLE)}


def test_every_code_of_a_problem_is_listed_with_its_status():
    kinds = [kind for kind in vars(problems).values() if isinstance(kind, type)]
    codes = {(kind.status, kind.code) for kind in kinds if issubclass(kind, problems.Problem)}
    rows = re.findall(r"^\| (\d{3}) \| (.+?) \|", API, re.MULTILINE)
    listed = {(int(status), code) for status, cell in rows for code in re.findall(r"`(\w+)`", cell)}
    assert codes <= listed


def test_the_page_of_cutting_orders_names_every_path_and_no_other():
    named = set(re.findall(r"^\| `(GET|POST|PUT) (/\S+)` \|", OPTIPLAN, re.MULTILINE))
    assert named == {item for item in PATHS if item[1].startswith(OF_OPTIPLAN)}


def test_the_page_of_pdfs_names_every_path_and_no_other():
    def without_names(path: str) -> str:
        return re.sub(r"\{\w+\}", "{}", path)

    there = {without_names(path) for _, path in PATHS if path.startswith("/pdf")}
    named = re.findall(r"/pdf/[a-z]+(?:/(?:[a-z]+|\{\w+\}))*", PDF)
    assert {*map(without_names, named)} - {"/pdf/jobs/{}/download"} <= there
    assert there - {"/pdf/batches/{}/download"} <= {*map(without_names, named)}


def test_the_page_of_pdfs_names_every_code_field_and_option():
    assert {f"`{code}`" for code in PdfErrorCode} <= set(re.findall(r"`[A-Z_]+`", PDF))
    fields = {*PdfJobRequest.model_fields, *PdfRenderOptions.model_fields} - {"options"}
    assert {field for field in fields if not re.search(rf"\b{field}`", PDF)} == set()
