"""The pages about conversions, followed by hand: curl and bash against a running service."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.mother import path_with_kesin
from tests.cli.programs import PATIENCE_S, Programs
from tests.docs.pages import DOCS, Block, blocks, matches
from tests.web.serving import own_settings, serve

WALKED = ("oci.md", "tr/oci.md", "ops/oci-attempt-cap.md", "ops/oci-control-smoke.md")
URL = "http://127.0.0.1:8000"
CRON_SECRET = "a secret for the cron caller"
END = "\x1e"  # between what two blocks print
SHOWN = ("json", "txt")


def steps(page: Path) -> list[tuple[Block, Block | None]]:
    """Each block that is typed, with the answer the page shows; nobody waits for `sleep` here."""
    found = blocks(page)
    typed = [n for n, one in enumerate(found) if one.language == "sh" and "sleep " not in one.text]
    after = [*found[1:], None]
    return [
        (found[n], answer if (answer := after[n]) and answer.language in SHOWN else None)
        for n in typed
    ]


@pytest.mark.parametrize("name", WALKED)
def test_who_types_what_the_page_says_sees_what_it_shows(name, tmp_path, monkeypatch):
    assert shutil.which("curl"), "these pages need curl"
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("KESIN_CRON_SECRET", CRON_SECRET)
    monkeypatch.setenv("PATH", path_with_kesin(tmp_path / "bin"))
    page = steps(DOCS / name)
    assert page
    with Programs(tmp_path) as started, serve(started, tmp_path) as served:
        told = "".join(f"{block.text}\nprintf '\\036'\n" for block, _ in page)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", told.replace(URL, served.address)],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
            check=False,
        )
    printed = done.stdout.split(END)
    for (block, answer), said in zip(page, printed, strict=False):
        if answer is not None:
            assert matches(answer.text, said), f"{name}:{block.line} says\n{said}\n{done.stderr}"
    assert done.returncode == 0, done.stderr


def test_no_key_and_no_secret_stands_on_a_page():
    told = [path.read_text("utf-8") for path in DOCS.rglob("*.md")]
    assert not [text for text in told if "kesin_session_" in text or "GOCSPX-" in text]
