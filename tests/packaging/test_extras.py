"""The wheel in an environment of its own with each extra alone: what runs, what names an extra.

An environment takes up to a minute and needs a network: only the long form makes them.
"""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from kesin import __version__
from kesin.foundation.extras import LIBRARIES

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

ROOT = Path(__file__).parents[2]
NOWHERE = "postgresql://u:p@127.0.0.1:1/x"
WITH_WEB = {"web", "oci", "pdf", "optiplan"}
HANDLER = "import kesin\n\n\ndef send(job):\n    return kesin.Done({'sent': 1})\n"
# Command → the extra that it names where it is missing, and the extras with which it works.
NEEDS = {
    ("pdf", "templates"): ("pdf", {"pdf"}),
    ("pdf", "render", "invoice", "-", "-o", "x.pdf"): ("pdf", {"pdf"}),
    ("worker", "pdf", "--until-idle"): ("pdf", {"pdf"}),
    ("worker", "pdf_batches", "pdf_webhooks", "--until-idle"): ("pdf", {"pdf"}),
    ("worker", "optiplan", "--until-idle"): ("optiplan", {"optiplan"}),
    ("optiplan", "optimize", "sheet.xlsx"): ("optiplan", {"optiplan"}),
    ("user", "add", "ann", "--role", "admin", "--password-stdin"): ("web", WITH_WEB),
    ("store", "copy", "data/kesin.db", NOWHERE, "--yes"): ("postgres", {"postgres"}),
    ("store", "copy", "data/kesin.db", "redis://127.0.0.1:1", "--yes"): ("redis", {"redis"}),
}
SETTINGS = {
    ("KESIN_DATABASE_URL", NOWHERE, "stats"): "postgres",
    ("KESIN_DATABASE_URL", NOWHERE, "migrate"): "postgres",
    ("KESIN_REDIS_URL", "redis://127.0.0.1:1", "stats"): "redis",
}


@pytest.fixture(scope="module", params=["", *LIBRARIES], ids=lambda extra: extra or "none")
def installed(request, wheel, tmp_path_factory):
    """An environment with the wheel and one extra alone, and a function that runs `kesin` in it."""
    extra = request.param
    folder = tmp_path_factory.mktemp(extra or "none")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    options = ["--python", folder / "venv/bin/python", "install", "-c", ROOT / "constraints.txt"]
    package = f"kesin[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    subprocess.run([*pip, *options, package], check=True)
    (folder / "handlers.py").write_text(HANDLER)
    (folder / "sheet.xlsx").write_bytes(b"PK: not a workbook, but read as one")
    yield extra, partial(_run, folder)
    subprocess.run(["rm", "-rf", folder / "venv"], check=True)


def _run(folder, *words, text="", **env):
    own = {name: value for name, value in os.environ.items() if not name.startswith("KESIN_")}
    return subprocess.run(
        [folder / "venv/bin/kesin", *words],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**own, "KESIN_DATA_DIR": str(folder / "data"), **env},
        timeout=300,
    )


def test_it_prints_its_version_runs_a_job_and_passes_doctor(installed):
    extra, kesin = installed
    assert kesin("--version").stdout == f"kesin {__version__}\n"
    assert "Commands:" in kesin("--help").stdout
    queue = ("emails", "--lifecycle", "task")
    assert kesin("enqueue", *queue, '{"to": 1}').returncode == 0
    work = kesin("worker", *queue, "--handler", "handlers:send", "--until-idle")
    assert work.returncode == 0, work.stderr
    assert json.loads(kesin("stats", "emails", "--json").stdout)[0]["states"]["done"] == 1
    assert kesin("audit", "verify").returncode == 0
    doctor = kesin("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert doctor.returncode == 0, doctor.stdout
    for name in LIBRARIES:
        check = checks[f"extra {name}"]
        if name == extra or (name == "web" and extra in WITH_WEB):
            assert check["found"] == "installed"
        else:
            assert (check["found"] == "installed") != (f"'kesin[{name}]'" in check["remedy"])


def test_a_command_that_needs_another_extra_names_it_in_one_sentence(installed):
    extra, kesin = installed
    kesin("worker", "oci", "--until-idle")  # creates the queues
    cases: list[tuple[tuple[str, ...], str, set[str], dict[str, str]]] = [
        (words, needs, able, {}) for words, (needs, able) in NEEDS.items()
    ]
    cases += [((word,), needs, {needs}, {name: to}) for (name, to, word), needs in SETTINGS.items()]
    for words, needs, able, env in cases:
        answer = kesin(*words, text="{}" if "render" in words else "long-enough-password\n", **env)
        assert "Traceback" not in answer.stderr, (words, answer.stderr)
        how = f"`pip install 'kesin[{needs}]'`"
        if extra in able:
            assert how not in answer.stderr, (words, answer.stderr)
        else:
            assert answer.returncode == 1, (words, answer.stderr)
            assert answer.stderr.splitlines()[-1].endswith(how), (words, answer.stderr)
    if extra == "pdf":
        answer = kesin("worker", "pdf", "--until-idle", KESIN_PDF_ARTIFACTS="s3://bucket")
        assert "`pip install 'kesin[s3]'`" in answer.stderr
    swept = kesin("sweep")
    assert (swept.returncode, "Traceback" in swept.stderr) == (0, False), swept.stderr


def test_the_service_starts_with_the_extra_web_and_names_it_otherwise(installed):
    extra, kesin = installed
    if extra not in WITH_WEB:
        answer = kesin("serve", "--port", "0")
        assert answer.returncode == 1
        assert answer.stderr.endswith("install it with `pip install 'kesin[web]'`\n")
        return
    folder = kesin.args[0]
    env = {**os.environ, "KESIN_DATA_DIR": str(folder / "data"), "KESIN_LOG": "json"}
    program = subprocess.Popen(
        [folder / "venv/bin/kesin", "serve", "--port", "0"], stderr=subprocess.PIPE, text=True, env=env, cwd=folder
    )
    with program:
        lines = []
        assert program.stderr is not None
        for line in program.stderr:
            lines.append(line)
            if '"listening"' in line:
                program.send_signal(signal.SIGTERM)
        assert any('"listening"' in line for line in lines), lines
        assert not any("Traceback" in line for line in lines), lines
    assert program.returncode == 0
