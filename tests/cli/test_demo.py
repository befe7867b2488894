import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import httpx
import pytest

from kesin.cli.demo.scenario import _sockets, demo_workloads, load_parts
from kesin.cli.support.errors import CommandError
from kesin.foundation.problems import Unavailable
from kesin.foundation.settings import DATABASE_FILE, Settings
from kesin.store.open import open_store
from kesin.web.server import bind_sockets
from kesin.workloads import built_in
from kesin.workloads.optiplan.demo import STRANGER
from kesin.workloads.pdf.demo import PdfDemo
from kesin.workloads.pdf.engines.base import find_chromium
from tests.cli.fork_server import CHILD_PYTHON
from tests.cli.programs import wait_until

NO_CHROMIUM = {"KESIN_PDF_CHROMIUM": "/bin/false"}


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder for the temporary folder of the demo."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def read_until(out: TextIO, text: str) -> str:
    """All lines up to the first that contains the text."""
    shown = ""
    for line in out:
        shown += line
        if text in line:
            return shown
    raise AssertionError(f"it ended without {text!r}:\n{shown}")


@contextmanager
def signed_in(address: str, password: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, headers={"origin": address}, timeout=30) as client:
        response = client.post("/api/session", json={"name": "admin", "password": password})
        assert response.status_code == 201, response.text
        yield client


@pytest.mark.usefixtures("quick_children")
@pytest.mark.parametrize("chromium", [False, pytest.param(True, marks=pytest.mark.long)])
def test_without_a_terminal_the_demo_ends_and_can_be_served(programs, temporary, tmp_path, chromium):
    """Without a working Chromium, which takes longer, WeasyPrint renders."""
    program = programs.start("demo", "--port", "0", "--keep", **({} if chromium else NO_CHROMIUM))
    out = program.process.stdout
    intro = read_until(out, "New work arrives")
    assert ("false did not start: " in intro) == ("WeasyPrint renders the PDFs instead" in intro) != chromium
    [address] = re.findall(r"address +(\S+)/dashboard", intro)
    password = re.findall(r"admin +(\S+)", intro)[0]
    with signed_in(address, password) as client:
        assert "Bosphorus Plumbing" in client.get("/dashboard").text
        held: list[dict[str, str]] = []

        def find_held() -> list[dict[str, str]]:
            held.extend(client.get("/jobs", params={"state": "HOLD"}).json()["jobs"])
            return held

        wait_until(find_held)
        [order] = held
        phone, name = STRANGER
        assert client.post("/customers", json={"name": name, "phone": phone}).status_code == 201
        assert client.post(f"/jobs/{order['id']}/approve").status_code == 200
    output = out.read()
    assert program.end() == 0, output
    for part in (
        "4. A cutting order that is waiting for you",
        "kill -9",
        "500 phone sales: 500 queued, 40 of them sent twice; 6 others rejected",
        "conversions: ",
        "stopping",
        "the history and the jobs agree",
    ):
        assert part in output
    wait_until(lambda: processes_in(temporary) == [])
    assert not (tmp_path / "data").exists()
    [folder] = temporary.iterdir()
    assert f"KESIN_DATA_DIR={folder} kesin serve" in output

    with closing(open_store(folder / DATABASE_FILE)) as store:
        moves = Counter({flow.move: flow.n for flow in store.move_counts("oci")})
    assert moves["recover"] > 0  # the script crashed, and what it held came back
    served = programs.start("serve", "--port", "0", "--no-workers", KESIN_DATA_DIR=str(folder))
    address = served.hear("listening")["address"]
    with signed_in(address, password) as client:
        states = {name: client.get(f"/api/queues/{name}/stats").json()["states"] for name in ("oci", "pdf", "optiplan")}
        assert states["optiplan"]["DONE"] == 2, states
        assert states["oci"]["COMPLETED"] + states["oci"]["FAILED"] == 540
        assert 0 < states["oci"]["FAILED"] < 60
        assert (states["pdf"]["succeeded"], states["pdf"]["failed"]) == (5, 1)
        job = client.get("/pdf/jobs", params={"status": "succeeded"}).json()["jobs"][0]
        assert client.get(job["download_url"]).content.startswith(b"%PDF-")
    served.signal(signal.SIGTERM)
    assert served.end() == 0


@pytest.mark.usefixtures("quick_children")
def test_on_a_terminal_the_demo_ends_by_ctrl_c_and_removes_its_folder(programs, temporary, monkeypatch, tmp_path):
    """Here on a machine that makes no PDFs: the demo shows the rest."""
    monkeypatch.setenv("KESIN_PDF_CHROMIUM", "/none")
    python = tmp_path / "python-without-weasyprint"
    python.write_text(f"""#!/bin/sh
case "$2" in
*.weasyprint_child) exit 1;;
*.optimizer) exec "{sys.executable}" "$@";; # the demo ends it, and a forked one would not notice
esac
exec "{os.environ[CHILD_PYTHON]}" "$@"
""")
    python.chmod(0o755)
    monkeypatch.setenv(CHILD_PYTHON, str(python))
    answer = programs.on_terminal("demo", "--port", "0", after="phone sales", type_in="\x03")
    assert answer.code == 0, answer.out
    assert "Traceback" not in answer.out
    assert "no PDFs: Chromium was not found (/none)" in answer.out.replace("\r\n", " ")
    assert "agree" in answer.out
    assert list(temporary.iterdir()) == []
    assert processes_in(temporary) == []


def processes_in(folder: Path) -> list[str]:
    """The command lines of the processes that name the folder."""
    return [line for line in command_lines() if str(folder) in line]


def command_lines() -> Iterator[str]:
    """The command line of every process."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield file.read_text(errors="replace")


def test_a_taken_port_is_an_error_if_given_and_else_another_is_used(kesin, temporary, monkeypatch):
    monkeypatch.setattr(PdfDemo, "check_machine", lambda _: "")  # it starts a browser
    with bind_sockets("127.0.0.1", 0) as [taken]:  # as another demo does that is about to start
        port = taken.getsockname()[1]
        answer = kesin("demo", "--port", port)
        assert answer.code == 1
        assert f"cannot listen on port {port}" in answer.err
        settings = Settings.model_construct(port=port)
        with _sockets(settings, None) as [other]:
            assert other.getsockname()[1] not in {0, port}
        with pytest.raises(Unavailable), _sockets(settings, port):
            pass
    assert list(temporary.iterdir()) == []


@pytest.mark.long
def test_without_a_working_playwright_weasyprint_renders(monkeypatch):
    monkeypatch.setenv("KESIN_PDF_CHROMIUM", str(find_chromium()))  # check_machine changes it
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", "/bin/false")
    note = PdfDemo().check_machine()
    assert "did not start: Playwright, which drives it, does not run here" in note
    assert "WeasyPrint renders the PDFs instead" in note


KNOWN = {workload.name: workload for workload in built_in()}


def test_every_main_workload_has_a_part_and_is_left_out_if_it_is_not_ready():
    parts = load_parts(KNOWN)
    assert parts.keys() == {name for name, workload in KNOWN.items() if not workload.part_of}
    ready = {name: part for name, part in parts.items() if name != "pdf"}
    served = demo_workloads(KNOWN, parts, ready, goes_on=False)
    assert served.keys() == {"oci", "oci_adjustments", "optiplan"}
    plain = {name: replace(workload, demo=None) for name, workload in KNOWN.items()}
    assert load_parts(plain) == {}
    assert demo_workloads(plain, {}, {}, goes_on=True) == plain, "a workload without a part is served"
    with pytest.raises(CommandError, match="'oci' is not a DemoPart"):
        load_parts({"oci": replace(KNOWN["oci"], demo=dict)})
