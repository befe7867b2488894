"""The pages about conversions, followed by hand: curl and bash against a running service."""

import pytest

from tests.cli.mother import path_with_kesin
from tests.cli.programs import Programs
from tests.docs.pages import DOCS
from tests.docs.walking import steps, walk
from tests.web.serving import own_settings, serve

WALKED = ("oci.md", "tr/oci.md", "ops/oci-attempt-cap.md", "ops/oci-control-smoke.md")
CRON_SECRET = "a secret for the cron caller"


@pytest.mark.parametrize("name", WALKED)
def test_who_types_what_the_page_says_sees_what_it_shows(name, tmp_path, monkeypatch):
    own_settings(monkeypatch, tmp_path)
    monkeypatch.setenv("KESIN_CRON_SECRET", CRON_SECRET)
    monkeypatch.setenv("PATH", path_with_kesin(tmp_path / "bin"))
    with Programs(tmp_path) as started, serve(started, tmp_path) as served:
        walk(steps(DOCS / name), tmp_path, served.address)


def test_no_key_and_no_secret_stands_on_a_page():
    told = [path.read_text("utf-8") for path in DOCS.rglob("*.md")]
    assert not [text for text in told if "kesin_session_" in text or "GOCSPX-" in text]
