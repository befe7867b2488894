import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import httpx
import pytest

from kesin.cli.demo.scenario import load_parts
from kesin.cli.demo.service import _sockets, demo_workloads
from kesin.cli.support.errors import CommandError
from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import Settings
from kesin.web.server import bind_sockets
from kesin.workloads import built_in
from kesin.workloads.common.demo import Pace
from kesin.workloads.optiplan.demo import STRANGER
from kesin.workloads.pdf.demo import check_renderers
from kesin.workloads.pdf.engines.availability import find_chromium


@pytest.fixture
def scraps(tmp_path, monkeypatch):
    """Where the demonstration puts its folder."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def shown_until(out: TextIO, text: str) -> str:
    """All lines up to the one that has this in it."""
    shown = ""
    for line in out:
        shown += line
        if text in line:
            return shown
    raise AssertionError(f"it ended without {text!r}:\n{shown}")


@contextmanager
def signed_in(address: str, password: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, headers={"origin": address}, timeout=30) as client:
        answer = client.post("/api/session", json={"name": "admin", "password": password})
        assert answer.status_code == 201, answer.text
        yield client


def test_unattended_it_ends_by_itself_and_what_is_kept_can_be_served(programs, scraps, tmp_path):
    program = programs.start("demo", "--port", "0", "--keep")
    out = program.process.stdout
    door = shown_until(out, "Work comes in")
    address = re.search(r"address +(\S+)/dashboard", door)[1]
    password = re.search(r"admin +(\S+)", door)[1]
    with signed_in(address, password) as client:
        assert "Bosphorus Plumbing" in client.get("/dashboard").text
        told = shown_until(out, "order A-1001 is held")
        [order] = client.get("/jobs", params={"state": "HOLD"}).json()["jobs"]
        phone, name = STRANGER
        assert client.post("/customers", json={"name": name, "phone": phone}).status_code == 201
        assert client.post(f"/jobs/{order['id']}/approve").status_code == 200
    told += out.read()
    assert program.end() == 0, told
    for part in (
        "500 phone sales: 500 queued, 40 were sent twice, 6 more refused",
        "crashed before it uploaded any",
        "reported",
        "conversions of a crashed script came back",
        "is held no longer",
        "stopping",
        "0 were lost",
        "the history and the jobs agree",
    ):
        assert part in told
    assert not (tmp_path / "data").exists()
    [folder] = scraps.iterdir()
    assert f"KESIN_DATA_DIR={folder} kesin serve" in told

    served = programs.start("serve", "--port", "0", "--no-workers", KESIN_DATA_DIR=str(folder))
    address = served.hear("listening")["address"]
    with signed_in(address, password) as client:
        states = {
            name: client.get(f"/api/queues/{name}/stats").json()["states"]
            for name in ("oci", "pdf", "optiplan")
        }
        assert states["optiplan"]["DONE"] == 2, states
        assert states["oci"]["COMPLETED"] + states["oci"]["FAILED"] == 540
        assert 0 < states["oci"]["FAILED"] < 60
        assert (states["pdf"]["succeeded"], states["pdf"]["failed"]) == (5, 1)
        made = client.get("/pdf/jobs", params={"status": "succeeded"}).json()["jobs"][0]
        assert client.get(made["download_url"]).content.startswith(b"%PDF-")
    served.signal(signal.SIGTERM)
    assert served.end() == 0


def test_on_a_terminal_it_goes_on_until_ctrl_c_and_leaves_nothing(programs, scraps):
    answer = programs.on_terminal("demo", "--port", "0", after="8. Who did what", type_in="\x03")
    assert answer.code == 0, answer.out
    assert "Traceback" not in answer.out
    for part in ("4. A cutting order that waits for you", "kill -9", "cutting orders", "agree"):
        assert part in answer.out
    assert list(scraps.iterdir()) == []
    assert [one for one in commands() if str(scraps) in one] == []


def commands() -> Iterator[str]:
    """What every process of this machine was started with."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield file.read_text(errors="replace")


def test_a_taken_port_is_told_if_it_was_asked_for_and_else_another_is_taken(kesin, scraps):
    with bind_sockets("127.0.0.1", 0) as [taken]:  # as another one does that is about to start
        port = taken.getsockname()[1]
        answer = kesin("demo", "--port", port)
        assert answer.code == 1
        assert f"cannot listen on port {port}" in answer.err
        settings = Settings.model_construct(port=port)
        with _sockets(settings, None) as [other]:
            assert other.getsockname()[1] not in {0, port}
        with pytest.raises(Unavailable), _sockets(settings, port):
            pass
    assert list(scraps.iterdir()) == []


@pytest.mark.parametrize(
    ("program", "why"),
    [("/bin/false", "/bin/false does not start (it ends with 1)"), ("/none", "apt-get install")],
)
def test_without_a_browser_that_starts_weasyprint_draws(program, why, monkeypatch):
    monkeypatch.setenv("KESIN_PDF_CHROMIUM", program)
    readiness = check_renderers()
    assert why in readiness.note
    assert "WeasyPrint draws the PDFs instead" in readiness.note
    assert readiness.ready


def test_where_playwright_does_not_run_weasyprint_draws(monkeypatch):
    monkeypatch.setenv("KESIN_PDF_CHROMIUM", str(find_chromium()))  # it is changed inside
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", "/bin/false")
    readiness = check_renderers()
    assert "Playwright, which drives Chromium, does not start (it ends with 1)" in readiness.note
    assert "WeasyPrint draws the PDFs instead" in readiness.note
    assert readiness.ready


KNOWN = {workload.name: workload for workload in built_in()}


def test_every_workload_that_is_no_completion_brings_a_part():
    assert load_parts(KNOWN).keys() == {name for name, one in KNOWN.items() if not one.part_of}


def test_a_part_that_cannot_be_shown_is_left_out_with_all_of_its_workload():
    parts = load_parts(KNOWN)
    ready = {name: part for name, part in parts.items() if name != "pdf"}
    assert demo_workloads(KNOWN, parts, ready, Pace.BRISK).keys() == {"oci", "optiplan"}


def test_a_workload_without_a_part_is_served_and_not_shown():
    plain = {name: replace(workload, demo=None) for name, workload in KNOWN.items()}
    assert load_parts(plain) == {}
    assert demo_workloads(plain, {}, {}, Pace.STROLL) == plain


def test_a_demo_that_is_no_part_is_refused_by_the_name_of_its_workload():
    wrong = {"oci": replace(KNOWN["oci"], demo=dict)}
    with pytest.raises(CommandError, match="'oci' is no DemoPart"):
        load_parts(wrong)
