"""The documentation's site in a browser."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Browser, expect

from tests.docs.pages import DOCS, ROOT

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
PAGES = {"README.md": "# Start\n\nHere it begins.\n", "leases.md": "# Leases\n\nA lease ends.\n"}


def test_the_site_is_made_to_be_read_and_searched_from_a_folder():
    assert "offline" in CONFIG["plugins"]
    assert [one for one in CONFIG["plugins"] if "search" in one] == [{"search": {"lang": ["en", "tr"]}}]
    assert CONFIG["use_directory_urls"] is False
    for script in CONFIG["extra"]["polyfills"]:
        assert (DOCS / script).is_file()


@pytest.mark.long  # in short: the test before; to build a site takes longer than twenty pages
def test_the_search_works_when_the_site_is_opened_from_a_folder(browser: Browser, tmp_path: Path):
    docs, site = tmp_path / "docs", tmp_path / "site"
    shutil.copytree(DOCS / "theme", docs / "theme")
    for name, text in PAGES.items():
        (docs / name).write_text(text, "utf-8")
    kept = {name: CONFIG[name] for name in ("plugins", "extra", "extra_css", "use_directory_urls")}
    config = {"site_name": "Kesin", "theme": CONFIG["theme"], **kept}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config), "utf-8")
    command = (sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", site)
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    page = browser.new_page()
    try:
        page.goto((site / "index.html").as_uri())
        page.get_by_role("textbox", name="Search").click()
        page.keyboard.type("lease")
        found = page.locator(".md-search-result__item a").first
        expect(found).to_contain_text("Leases")
        found.click()
        expect(page).to_have_url((site / "leases.html").as_uri() + "?h=lease")
    finally:
        page.close()
