"""What the pages install is installed as they say, into a folder, and what it brings is there.

The libraries it needs are left out, and the one that builds is ours: `make soak` installs them all.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.cli.programs import PATIENCE_S, Programs
from tests.docs.pages import DOCS, ROOT, blocks
from tests.web.serving import own_settings, serve

PIP = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # 0: not isolated


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Path:
    """Where pip puts what is installed from now on, and where Python finds it."""
    folder = tmp_path / "installed"
    for name, value in {**PIP, "PIP_TARGET": str(folder), "PIP_UPGRADE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", sysconfig.get_path("purelib"))
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    return folder


def typed(page: str, begins: str) -> str:
    return next(one.text for one in blocks(DOCS / page) if one.text.startswith(begins))


def do(text: str, folder: Path = ROOT) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "page", ["quickstart.md", pytest.param("baslangic.md", marks=pytest.mark.long)]
)
def test_kesin_is_installed_as_the_quick_start_says(page, installed, tmp_path):
    do(typed(page, "python3 -m venv"))
    assert (installed / "kesin" / "py.typed").exists()
    assert (installed / "bin" / "kesin").exists()
    assert (tmp_path / "kesin-env" / "bin" / "activate").exists()


def test_the_courier_is_installed_and_takes_what_the_tutorial_sends(
    installed, tmp_path, monkeypatch
):
    do(typed("tutorial.md", "pip install ./examples/courier"))
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    with Programs(tmp_path) as programs, serve(programs, tmp_path, "--no-workers") as served:
        assert programs.run("site", "add", "ankara").code == 0
        monkeypatch.setenv("KEY", served.key)
        send = typed("tutorial.md", "curl localhost:8000").replace("localhost:8000", served.address)
        assert '"result":"inserted"' in do(send, tmp_path)
        assert '"result":"duplicate"' in do(send, tmp_path)
