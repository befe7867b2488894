"""Pages whose commands are typed beside a running service and print what the pages show."""

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kesin.foundation.encryption import new_key
from kesin.workloads.pdf.jobs.heartbeat import check_worker_health
from tests.cli.fork_server import CHILD_PYTHON, path_with_kesin, write_stub
from tests.cli.programs import Programs, wait_until
from tests.docs.pages import blocks_of
from tests.docs.shell import URL, follow, run
from tests.web.serving import Served, opened, own_settings, serve
from tests.workloads.pdf.vera import running_vera

CRON_SECRET = "a secret for the cron caller"
E_INVOICE = "pdf-api.md#from-html-to-an-archived-e-invoice-in-ten-minutes"
OF_E_INVOICE = {"bill.pdf", "bill.zip", "received.pdf", "given.pdf"}
# The pages, and sections of pages, that share a service; the first of a group may show the figures
# of all sites.
FOLLOWED = {
    "after each other": (
        "oci-operations.md#alerts",
        "oci.md",
        "oci-sites.md#several-conversion-actions",
        "oci-files.md",
        "oci-operations.md#from-a-new-site-to-a-reconciled-day",
        "oci-sites.md#fifty-sites",
        "oci-operations.md#spent-attempts",
        "oci-operations.md#smoke-test",
        "optiplan.md",
        "pdf.md",
    ),
    "with a process that renders": (
        "tr/is-kollari.md#çevrimdışı-dönüşümler",
        "pdf-api.md",
        E_INVOICE,
        "pdf-operations.md#alerts",
        "tr/is-kollari.md#pdf",
        "tr/is-kollari.md#kesim-siparişleri",
    ),
}
LONG = "with a process that renders"  # in short: tests/workloads/pdf and the English pages
# The runbooks of alerts show no output: parts of it, in this order.
ALERTS = {
    "oci-operations.md#alerts": [
        '{"status":"ok",',
        "night",
        "no script has ever reported",
        "nothing was due",
        '{"ok":true,"recovered":0}',
    ],
    "pdf-operations.md#alerts": ["test page", "1 alive", "OLDEST DUE", "no job matches"],
}
FILES = {
    "optiplan.md": {*("plan.pdf", "board.svg", "solutions.zip", "import.zip"), *("labels.pdf", "kitchen.ptx")},
    "tr/is-kollari.md#kesim-siparişleri": {"plan.pdf"},
    "pdf.md": {"invoice.pdf", "letter.pdf"},
    "pdf-api.md": {*OF_E_INVOICE, "invoice.pdf", "report.pdf", "whole.pdf", "note.zip"},
    E_INVOICE: OF_E_INVOICE,
    "tr/is-kollari.md#pdf": {"fatura.pdf", "fatura-1.pdf", "arsiv.pdf", "taslak.pdf"},
}
# The standards that a validator finds in the files of a page.
CONFORMING = {E_INVOICE: {"bill.pdf": ("pdf/a-3a", "pdf/ua-1"), "given.pdf": ("pdf/a-3b",)}}
MAGIC = {".pdf": b"%PDF-", ".svg": b"<svg", ".zip": b"PK", ".ptx": b"HEADER"}


@pytest.fixture
def programs(tmp_path, monkeypatch) -> Iterator[Programs]:
    """Programs that start at once, also those that the commands of a page start."""
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("KESIN_CRON_SECRET", CRON_SECRET)
    monkeypatch.setenv("PATH", path_with_kesin(tmp_path / "bin"))
    monkeypatch.setenv(CHILD_PYTHON, str(write_stub(tmp_path, "python")))
    with Programs(tmp_path) as programs:
        yield programs


@pytest.mark.parametrize("group", [pytest.param(name, marks=[pytest.mark.long] * (name == LONG)) for name in FOLLOWED])
def test_the_commands_of_a_page_print_what_it_shows(group, programs, tmp_path, monkeypatch):
    """One service for several pages: each uses a site, keys or orders of its own."""
    renders = group == LONG
    monkeypatch.setenv("KESIN_PDF_PROCESSES", str(int(renders)))
    monkeypatch.setenv("KESIN_SECRET_KEYS", new_key() if renders else "")
    with serve(programs, tmp_path) as served, opened(tmp_path) as store:
        if renders:
            wait_until(lambda: check_worker_health(store))
        for name in FOLLOWED[group]:
            folder = tmp_path / folder_of(name)
            if name in ALERTS:
                assert programs.run("site", "add", "night").code == 0
                check_runbook(name, served.address, monkeypatch, tmp_path)
            else:
                follow(name, folder, served.address)
                check_files(folder, FILES.get(name, set()))
        if group != LONG:
            check_api(served, programs, monkeypatch, tmp_path)
    for name in CONFORMING.keys() & FOLLOWED[group]:
        check_standards(tmp_path, tmp_path / folder_of(name), CONFORMING[name])


def folder_of(name: str) -> str:
    return re.sub(r"\W", "-", name)


def check_standards(place: Path, folder: Path, files: dict[str, tuple[str, ...]]) -> None:
    for vera in running_vera(place):
        for name, standards in files.items():
            for standard in standards:
                rules = vera.broken_rules((folder / name).read_bytes(), standard)
                assert (name, standard, rules) == (name, standard, [])


def check_runbook(name: str, address: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("URL", address)
    monkeypatch.setenv("SITE", "night")
    typed = "\n".join(block.text for block in blocks_of(name) if block.language == "sh")
    output = run(typed, folder, options="-uo")  # `doctor` fails where it finds something
    at = 0
    for part in ALERTS[name]:
        at = output.index(part, at) + len(part)


def check_files(folder: Path, names: set[str]) -> None:
    """The page left these files, and they are what their names say."""
    written = {path.name for path in folder.iterdir() if path.suffix in MAGIC}
    assert written == names
    for path in map(folder.joinpath, names):
        data = path.read_bytes()
        assert data.startswith(MAGIC[path.suffix]), data[:200]
        assert path.suffix != ".zip" or len(zipfile.ZipFile(io.BytesIO(data)).namelist()) > 1


def check_api(served: Served, programs: Programs, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Every example of api.md succeeds, except the stream of events, which does not end."""
    password = "correct horse battery"
    added = programs.run("user", "add", "ayse", "--role", "admin", "--password-stdin", text=password)
    assert added.code == 0, added.err
    monkeypatch.setenv("ID", served.enqueue("pdf", {"n": 0})[0])
    monkeypatch.setenv("CURL_HOME", str(folder))
    (folder / ".curlrc").write_text("silent\nfail-with-body\n")
    examples = [block.text for block in blocks_of("api.md") if block.language == "sh"]
    typed = "\n".join(text for text in examples if "curl -N " not in text)
    run(typed.replace(URL, served.address), folder)
