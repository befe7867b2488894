"""Whoever is called at night types what the page of the alert says, beside a service that runs."""

import subprocess

import pytest

from tests.cli.mother import path_with_kesin
from tests.cli.programs import PATIENCE_S, Programs
from tests.docs.pages import DOCS, blocks
from tests.web.serving import own_settings, serve

SITE = "north"
SHOWN = {  # in this order
    "ops/oci-alerts.md": [
        '{"status":"ok",',
        f"{SITE}  script ",
        "none has ever reported",
        "nothing was due",
        '{"ok":true,"recovered":0}',
    ],
    "ops/pdf-alerts.md": ["test page", "0 alive", "OLDEST DUE", "no job matches"],
}


@pytest.mark.parametrize("page", SHOWN)
def test_what_the_page_says_first_can_be_typed(page, tmp_path, monkeypatch):
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("KESIN_CRON_SECRET", "a secret for the cron caller")
    monkeypatch.setenv("PATH", path_with_kesin(tmp_path / "bin"))
    monkeypatch.setenv("SITE", SITE)
    typed = [one.text for one in blocks(DOCS / page) if one.language == "sh"]
    with Programs(tmp_path) as programs, serve(programs, tmp_path) as served:
        monkeypatch.setenv("URL", served.address)
        assert programs.run("site", "add", SITE).code == 0
        done = subprocess.run(
            ["bash", "-uo", "pipefail", "-c", "\n".join(typed)],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
            check=True,
        )
    at = 0
    for shown in SHOWN[page]:
        at = done.stdout.index(shown, at) + len(shown)
